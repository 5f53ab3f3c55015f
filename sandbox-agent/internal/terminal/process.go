package terminal

import (
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A launch says what to start on a new PTY.
type launch struct {
	argv       []string // argv[0] is looked up in env's PATH
	dir        string
	env        []string
	cols, rows int
	account    account
	front      bool         // of a coding agent: not everything under account is its own
	mark       process.Mark // of a coding agent: what it starts bears it
}

// A launcher starts a program on a PTY. Tests put an in-memory one in place of
// [ptys].
type launcher func(launch) (device, child, error)

// A device is a PTY as the agent sees it. No method pins a thread, and Close
// ends those that wait.
type device interface {
	// Read waits for output. It returns io.EOF when there will be none.
	Read(p []byte) (int, error)
	// Offer writes as much of p as there is room for, perhaps nothing, and
	// never waits.
	Offer(p []byte) (int, error)
	// WhenWritable calls fn now and each time that there may be room again,
	// until fn returns true. It fails when the device is closed.
	WhenWritable(fn func() (done bool)) error
	Resize(cols, rows int) error
	Close() error
}

// A child is the program on a PTY and what it started.
type child interface {
	// Wait returns how the program ended, once. It reaps it.
	Wait() exit
	// Signal sends sig to the terminal's foreground job and returns to how
	// many processes.
	Signal(sig syscall.Signal) int
	// SignalAll sends sig to everything that still runs in the terminal, the
	// program included, and returns to how many processes. Of a coding agent
	// it reaches all that the agent started, and nothing else.
	SignalAll(sig syscall.Signal) int
	// Freeze stops the program and all that it started, or lets it go on.
	Freeze(on bool) error
	// PID returns the program's process id.
	PID() int
	// Dir returns the program's folder, empty when it can't be told.
	Dir() string
}

// An exit says how a program ended: by code, or by signal and then code is −1.
type exit struct {
	code   int
	signal string
}

// A program runs on a PTY. A terminal has one of its own, and perhaps a coding
// agent's in front of it.
type program struct {
	// Static after construction.
	dev    device
	proc   child
	reader sync.WaitGroup // of its output

	// Guarded by terminal.mu.
	waiting  bool           // its reader waits for proceed
	proceed  chan struct{}  // 1 element
	lifted   bool           // it has ended: nobody holds back what is left
	answers  []byte         // to terminal queries, at most maxAnswerBytes
	flushing bool           // flush runs
	stream   *redact.Stream // of what it prints; nil: there has never been a secret
	loose    []byte         // let out by stream, and not shown yet
}

func newProgram(dev device, proc child) *program {
	return &program{dev: dev, proc: proc, proceed: make(chan struct{}, 1)}
}
