package pty

import (
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// notStarted is the code of the end of a program that couldn't be started, as
// shells have it.
const notStarted = 126

// A Pending is a PTY on which a program starts with the first byte that is typed.
// Before that there is neither: it costs no process and no descriptor. To who
// holds it it is a [Device] and a [Child] from the beginning, one that has printed
// nothing and reads nothing yet.
//
// A signal that ends programs ends it as well, and then nothing is ever started. A
// program that can't be started says why and ends.
type Pending struct {
	// Static after construction.
	starter Starter
	came    chan struct{} // closed when dev and child are there, for good

	mu sync.Mutex
	// Guarded by mu.
	phase  phase
	plan   Launch
	missed []syscall.Signal // while it started, each once
	dev    Device
	child  Child
}

// A phase is how far a Pending is.
type phase int

const (
	waiting phase = iota
	starting
	came // a program, or the certainty that there will be none
)

// A Starter starts the program of a [Pending], as a [Launcher] does.
type Starter interface {
	Launch(Launch) (Device, Child, error)
}

// NewPending returns a PTY on which starter starts plan when it is to.
func NewPending(plan Launch, starter Starter) *Pending {
	return &Pending{starter: starter, plan: plan, came: make(chan struct{})}
}

// Waits reports whether nothing was started yet.
func (p *Pending) Waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase == waiting
}

// Offer implements [Device]. What is offered first starts the program, and is taken
// when that runs.
func (p *Pending) Offer(b []byte) (int, error) {
	dev := p.begin(len(b) > 0)
	if dev == nil {
		return 0, nil
	}
	return dev.Offer(b)
}

// begin returns the device, nil if it isn't there yet. If typed, it has the program
// started.
func (p *Pending) begin(typed bool) Device {
	p.mu.Lock()
	defer p.mu.Unlock()
	if typed && p.phase == waiting {
		p.phase = starting
		go p.start(p.plan) // Wait waits for it
	}
	return p.dev
}

// start starts the program as plan says.
func (p *Pending) start(plan Launch) {
	dev, child, err := p.starter.Launch(plan)
	if err != nil {
		dev, child = &stillborn{say: strings.NewReader("fairlead: the program can't be started: " + err.Error() + "\r\n")}, nobody{Exit{Code: notStarted}}
	}
	for _, sig := range p.become(dev, child) {
		child.SignalAll(sig)
	}
}

// become hands everything on to dev and child, and returns the signals that came
// meanwhile.
func (p *Pending) become(dev Device, child Child) []syscall.Signal {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.dev, p.child = came, dev, child
	// Nobody can resize the device before this is done. A size that it doesn't take
	// is one that it will be given again.
	_ = dev.Resize(p.plan.Cols, p.plan.Rows)
	close(p.came)
	return p.missed
}

// giveUp has nothing started ever, unless it is already. It reports whether that
// is so.
func (p *Pending) giveUp(sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase != waiting {
		return false
	}
	p.phase, p.dev, p.child = came, &stillborn{}, nobody{Exit{Code: -1, Signal: unix.SignalName(sig)}}
	close(p.came)
	return true
}

// Read implements [Device].
func (p *Pending) Read(b []byte) (int, error) {
	<-p.came
	return p.begin(false).Read(b)
}

// WhenWritable implements [Device].
func (p *Pending) WhenWritable(fn func() bool) error {
	<-p.came
	return p.begin(false).WhenWritable(fn)
}

// Resize implements [Device]. The program starts at the last size.
func (p *Pending) Resize(cols, rows int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan.Cols, p.plan.Rows = cols, rows
	if p.dev == nil {
		return nil
	}
	return p.dev.Resize(cols, rows)
}

// Close implements [Device].
func (p *Pending) Close() error {
	p.giveUp(syscall.SIGHUP)
	<-p.came
	return p.begin(false).Close()
}

// Editing implements [LineEditor].
func (p *Pending) Editing() (group int, byKey bool) {
	if editor, ok := p.begin(false).(LineEditor); ok {
		return editor.Editing()
	}
	return 0, false
}

// Wait implements [Child].
func (p *Pending) Wait() Exit {
	<-p.came
	return p.program().Wait()
}

// program returns the program, nil if it isn't there yet.
func (p *Pending) program() Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// Signal implements [Child].
func (p *Pending) Signal(sig syscall.Signal) int {
	if child := p.program(); child != nil {
		return child.Signal(sig)
	}
	return 0
}

// SignalAll implements [Child]. A program that starts just now gets what it missed.
func (p *Pending) SignalAll(sig syscall.Signal) int {
	if ends(sig) && p.giveUp(sig) {
		return 0
	}
	if child := p.miss(sig); child != nil {
		return child.SignalAll(sig)
	}
	return 0
}

// ends reports whether sig is one by which terminals end.
func ends(sig syscall.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGHUP || sig == syscall.SIGTERM || sig == syscall.SIGKILL
}

// miss returns the program, or notes that it has missed sig.
func (p *Pending) miss(sig syscall.Signal) Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == starting && sig != 0 && !slices.Contains(p.missed, sig) {
		p.missed = append(p.missed, sig)
	}
	return p.child
}

// Freeze implements [Child].
func (p *Pending) Freeze(on bool) error {
	if child := p.program(); child != nil {
		return child.Freeze(on)
	}
	return nil
}

// PID implements [Child]. It is 0 while nothing runs.
func (p *Pending) PID() int {
	if child := p.program(); child != nil {
		return child.PID()
	}
	return 0
}

// Dir implements [Child].
func (p *Pending) Dir() string {
	if child := p.program(); child != nil {
		return child.Dir()
	}
	return ""
}

// A stillborn is the device of a program that was never started.
type stillborn struct{ say *strings.Reader } // why; nil: nothing

func (d *stillborn) Read(p []byte) (int, error) {
	if d.say == nil {
		return 0, io.EOF
	}
	return d.say.Read(p)
}

func (*stillborn) Offer([]byte) (int, error)      { return 0, os.ErrClosed }
func (*stillborn) WhenWritable(func() bool) error { return os.ErrClosed }
func (*stillborn) Resize(int, int) error          { return nil }
func (*stillborn) Close() error                   { return nil }

// nobody is how a program ended that was never started.
type nobody struct{ how Exit }

func (n nobody) Wait() Exit                 { return n.how }
func (nobody) Signal(syscall.Signal) int    { return 0 }
func (nobody) SignalAll(syscall.Signal) int { return 0 }
func (nobody) Freeze(bool) error            { return nil }
func (nobody) PID() int                     { return 0 }
func (nobody) Dir() string                  { return "" }
