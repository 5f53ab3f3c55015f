package terminal

import (
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/lifespan"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

const (
	// killAfter is how long what an ended program left may take to end.
	killAfter = lifespan.KillAfter
	// drainFor is how long an ended program's output may take to arrive.
	drainFor = time.Second
	// sweepEvery is how often leftover processes are looked for.
	sweepEvery = 50 * time.Millisecond
	// maxKills bounds the rounds in which leftover processes are killed.
	maxKills = 200
)

// life is what keep waits for, and what waits for it.
type life struct {
	closing latch         // the program is to end
	killing latch         // and at once
	gone    chan struct{} // closed when everything is released

	agents    sync.WaitGroup // attend; only added to before the end
	followers sync.WaitGroup // of the log; the same
}

// A latch is a channel that can be closed more than once.
type latch struct {
	c    chan struct{}
	once sync.Once
}

func (l *latch) raise() { l.once.Do(func() { close(l.c) }) }

// released reports whether the terminal holds nothing but its log.
func (t *Terminal) released() bool {
	select {
	case <-t.life.gone:
		return true
	default:
		return false
	}
}

func (t *Terminal) close() { t.life.closing.raise() }

func (t *Terminal) kill() {
	t.life.closing.raise()
	t.life.killing.raise()
}

// keep owns the terminal's life: it runs the deadlines of lease, grants and size,
// ends the programs when asked to, records the end, and calls release when
// nothing is left.
func (t *Terminal) keep(release func()) {
	exits := make(chan pty.Exit, 1)
	go func() { exits <- t.own.Process.Wait() }() // received below
	ending := lifespan.NewEnding(t.created.OnDetach)
	deadline := time.NewTimer(0)
	defer deadline.Stop()
	closing, killing := t.life.closing.c, t.life.killing.c
	var left *pty.Exit // the terminal's own program, when it has ended
	for {
		if left != nil && t.arbiter.Leave() {
			t.finish(*left, &ending)
			release()
			close(t.life.gone)
			return
		}
		select {
		case e := <-exits:
			left = &e
		case <-t.arbiter.Changed():
		case <-deadline.C:
		case <-closing:
			closing = nil
			ending.HangUp(time.Now())
		case <-killing:
			closing, killing = nil, nil // raised together, and seen in any order
			ending.Kill(time.Now())
		}
		deadline.Reset(t.goOn(&ending))
	}
}

// goOn does what is due, sends everything the signals that are, and returns how
// long until something is again.
func (t *Terminal) goOn(ending *lifespan.Ending) time.Duration {
	next, now, begun := t.tick(), time.Now(), ending.Begun()
	ending.Watch(t.arbiter.Absence())
	if signals := ending.Signals(now); len(signals) > 0 {
		if slices.Contains(signals, syscall.SIGKILL) {
			t.life.killing.raise() // sweep need not be patient either
		}
		t.signalAll(signals...)
	}
	if !begun && ending.Begun() {
		t.noteDeserted()
	}
	if at, due := ending.Deadline(); due {
		next = min(next, max(at.Sub(now), 0))
	}
	return next
}

// signalAll sends signals to everything in the terminal, a coding agent too.
func (t *Terminal) signalAll(signals ...syscall.Signal) {
	front, _ := t.arbiter.Front()
	for _, sig := range signals {
		t.own.Process.SignalAll(sig)
		if front != t.own.Program {
			front.Process.SignalAll(sig)
		}
	}
}

// drain takes what output of p, which has ended, is left, and closes its PTY.
func (t *Terminal) drain(p *program) {
	t.arbiter.Lift(p.Program)
	drained := make(chan struct{})
	go func() { // ends when read does, at the latest after Close below
		p.reader.Wait()
		close(drained)
	}()
	late := time.NewTimer(drainFor)
	defer late.Stop()
	select {
	case <-drained:
	case <-late.C: // something else holds the PTY open
	}
	if err := p.Device.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.log.Warn("closing a terminal failed", "error", err)
	}
	<-drained
}

// finish takes what output is left, records the end and clears away what the
// program left running, no later than the terminal is to be gone.
func (t *Terminal) finish(e pty.Exit, ending *lifespan.Ending) {
	if at, begun := ending.KillAt(); begun {
		late := time.AfterFunc(time.Until(at), t.life.killing.raise)
		defer late.Stop()
	}
	t.drain(t.own)
	t.addresses.end()
	t.end(e)
	t.arbiter.Wait()
	t.life.followers.Wait()
	t.log.Info("terminal ended", "code", e.Code, "signal", e.Signal)
	t.life.agents.Wait()
	t.sweep(t.own.Process, killAfter)
}

// end records the end. What was due later is done now: keep runs no deadlines any
// more.
func (t *Terminal) end(e pty.Exit) {
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	now := time.Now()
	if t.view.display.Due() {
		t.beginAnew()
	}
	t.endSeen.Store(!t.arbiter.Absence().Nobody)
	t.arbiter.End(now, e.Code, e.Signal)
	t.takeKeyframes(now)
}

// hangUp tells everything of proc to end, stopped jobs too, and returns how much
// there was.
func hangUp(proc pty.Child) int {
	n := proc.SignalAll(syscall.SIGHUP)
	if n > 0 {
		proc.SignalAll(syscall.SIGCONT)
	}
	return n
}

// sweep hangs up what a program left running, stopped jobs too, and kills what is
// still there later: a uid must be empty before another terminal gets it.
func (t *Terminal) sweep(proc pty.Child, patient time.Duration) {
	if hangUp(proc) == 0 {
		return
	}
	again := time.NewTicker(sweepEvery)
	defer again.Stop()
	patience := time.NewTimer(patient)
	defer patience.Stop()
	for waiting := true; waiting; {
		select {
		case <-patience.C:
			waiting = false
		case <-t.life.killing.c:
			waiting = false
		case <-again.C:
			if proc.SignalAll(0) == 0 {
				return
			}
		}
	}
	for range maxKills {
		if proc.SignalAll(syscall.SIGKILL) == 0 {
			return
		}
		<-again.C
	}
	t.log.Error("processes of an ended terminal can't be killed")
}
