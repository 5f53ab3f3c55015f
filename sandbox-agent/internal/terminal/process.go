package terminal

import (
	"sync"

	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// A program runs on a PTY. A terminal has one of its own, and perhaps a coding
// agent's in front of it.
type program struct {
	// Static after construction.
	dev     pty.Device
	proc    pty.Child
	reader  sync.WaitGroup // of its output
	proceed chan struct{}  // 1 element: the reader may go on

	out display.Feed // guarded by view.mu

	// Guarded by arbiter.mu.
	waiting  bool   // its reader waits for proceed
	lifted   bool   // it has ended: nobody holds back what is left
	answers  []byte // to terminal queries, at most maxAnswerBytes
	flushing bool   // flush runs
}

func newProgram(dev pty.Device, proc pty.Child) *program {
	return &program{dev: dev, proc: proc, proceed: make(chan struct{}, 1)}
}
