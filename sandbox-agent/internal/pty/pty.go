// Package pty starts programs on PTYs of their own, and reaches them and what
// they start.
package pty

import (
	"syscall"

	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// A Launch says what to start on a new PTY.
type Launch struct {
	Argv       []string // Argv[0] is looked up in Env's PATH
	Dir        string
	Env        []string
	Cols, Rows int
	Account    account.Account
	Front      bool         // of a coding agent: not everything under Account is its own
	Mark       process.Mark // of a coding agent: what it starts bears it
}

// A Launcher starts a program on a PTY. Tests put an in-memory one in place of
// that of [New].
type Launcher func(Launch) (Device, Child, error)

// A Device is a PTY as the agent sees it. No method pins a thread, and Close
// ends those that wait.
type Device interface {
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

// A Child is the program on a PTY and what it started.
type Child interface {
	// Wait returns how the program ended, once. It reaps it.
	Wait() Exit
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

// An Exit says how a program ended: by code, or by signal and then Code is −1.
type Exit struct {
	Code   int
	Signal string
}
