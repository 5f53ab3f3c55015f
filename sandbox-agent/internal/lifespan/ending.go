package lifespan

import (
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// KillAfter is how long a program that was asked to end may take.
	KillAfter = 3 * time.Second
	// termAfter is when a program that nobody watched any more gets TERM as well.
	termAfter = KillAfter / 2
	// hangUpEvery is how often a program that is to end is told so. Bash overlooks a
	// signal that comes just before it waits for a key.
	hangUpEvery = 100 * time.Millisecond
	// killEvery is how often a program is killed: what is forked meanwhile escapes one
	// round.
	killEvery = 50 * time.Millisecond
	// UnseenFor is how long a terminal that closes with its last viewer waits for the
	// first.
	UnseenFor = 60 * time.Second
)

// An Ending decides when a terminal ends, and how. It ends because somebody wants
// that, or for want of viewers. Once it has begun to, nothing stops it.
//
// A program is hung up: it gets HUP over and over, and is killed after [KillAfter].
// One that ends for want of viewers gets TERM too, in between. One that closes with
// its last viewer is interrupted instead: it gets INT, once, and is killed as late.
type Ending struct {
	// Static.
	after time.Duration // without viewers
	ends  bool          // for want of them
	close bool          // with the last of them

	begun manner
	at    time.Time // the terminal will begin to end; zero: it won't by itself
	since time.Time // it ends in this manner
	kill  time.Time // from then on
	next  time.Time // signals are due
}

// A manner is how a terminal ends.
type manner int

const (
	goesOn manner = iota
	interrupted
	hungUp
	deserted // hung up, for want of viewers
	killed
)

// NewEnding returns that of a terminal which goes on.
func NewEnding(on op.OnDetach) Ending {
	e := Ending{close: on == op.DetachClose}
	e.after, e.ends = on.After()
	return e
}

// Watch notes who watches. Nothing happens before [Ending.Signals].
func (e *Ending) Watch(who Absence) {
	e.at = time.Time{}
	if e.ends && who.Nobody {
		e.at = who.Since.Add(e.patience(who))
	}
}

// patience returns how long nobody may watch.
func (e *Ending) patience(who Absence) time.Duration {
	if e.close && who.Never {
		return UnseenFor
	}
	return e.after
}

// HangUp begins the end that somebody wants.
func (e *Ending) HangUp(now time.Time) {
	if e.begun < hungUp {
		e.begin(hungUp, now)
	}
}

// Kill begins an end without any patience.
func (e *Ending) Kill(now time.Time) {
	if e.begun < killed {
		e.begin(killed, now)
		e.kill = now
	}
}

// begin begins the end in a manner, or goes on with one. It comes no later for that.
func (e *Ending) begin(m manner, now time.Time) {
	if e.begun == goesOn {
		e.kill = now.Add(KillAfter)
	}
	e.begun, e.since, e.next = m, now, now
}

// Signals returns what everything in the terminal gets now, in that order.
func (e *Ending) Signals(now time.Time) []syscall.Signal {
	switch {
	case e.begun != goesOn:
	case e.at.IsZero() || now.Before(e.at):
		return nil
	case e.close:
		e.begin(interrupted, now)
	default:
		e.begin(deserted, now)
	}
	if now.Before(e.next) {
		return nil
	}
	switch {
	case !now.Before(e.kill):
		e.begun, e.next = killed, now.Add(killEvery)
		return []syscall.Signal{syscall.SIGKILL}
	case e.begun == interrupted:
		e.next = e.kill
		return []syscall.Signal{syscall.SIGINT, syscall.SIGCONT}
	}
	e.next = now.Add(hangUpEvery)
	if e.next.After(e.kill) {
		e.next = e.kill
	}
	if e.begun == hungUp || now.Sub(e.since) < termAfter {
		return []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT}
	}
	return []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGCONT}
}

// Deadline returns when [Ending.Signals] may have some again; false: not before
// anything changes.
func (e *Ending) Deadline() (time.Time, bool) {
	if e.begun != goesOn {
		return e.next, true
	}
	return e.at, !e.at.IsZero()
}

// KillAt returns when everything that is left is killed; false: nobody has said so.
func (e *Ending) KillAt() (time.Time, bool) { return e.kill, e.begun != goesOn }

// Begun reports whether the end has begun.
func (e *Ending) Begun() bool { return e.begun != goesOn }
