// Package life says how the runs of a conversation begin and end: a state machine
// that knows no process and no clock.
package life

import "github.com/fairlead/fairlead/protocol"

// A Life is what a conversation is doing. The zero value does nothing.
//
// A run that has begun is completed once. While it works, the end of its turn or
// of its process completes it. A run that has failed or that somebody has aborted
// is completed when its process, and all that the process started, is gone.
type Life struct {
	phase  phase
	ending bool // End was returned
}

type phase uint8

const (
	idle     phase = iota
	working        // the coding agent works on a message
	failing        // it can't go on, and its process is being ended
	aborting       // somebody has stopped it
)

// State returns what people are told.
func (l Life) State() protocol.RunState {
	switch l.phase {
	case idle:
		return protocol.RunIdle
	case aborting:
		return protocol.RunAborting
	}
	return protocol.RunRunning
}

// An Event is something that happened: one of the types below.
type Event interface{ event() }

type (
	// Begin begins a run.
	Begin struct{}
	// Done is the end of the turn.
	Done struct{ ExitCode int }
	// Fail says that the run can't go on, whatever its process does.
	Fail struct{}
	// Abort is somebody's wish.
	Abort struct{}
	// Impatience says that the turn was interrupted long enough ago.
	Impatience struct{}
	// Gone says that the process has ended, with all that it started unless Left,
	// and that all its output was taken; or that there never was one.
	Gone struct{ Left bool }
)

func (Begin) event()      {}
func (Done) event()       {}
func (Fail) event()       {}
func (Abort) event()      {}
func (Impatience) event() {}
func (Gone) event()       {}

// An Effect is something to do: one of the types below.
type Effect interface{ effect() }

type (
	// Interrupt stops the turn. Impatience comes some time later.
	Interrupt struct{}
	// End ends the process and all that it started. Gone comes then.
	End struct{}
	// Complete ends the run.
	Complete struct {
		ExitCode int
		Aborted  bool
	}
)

func (Interrupt) effect() {}
func (End) effect()       {}
func (Complete) effect()  {}

// Unknown is the exit code where there is none (seed 002).
const Unknown = 1

// Step returns what becomes of l and what is to be done, in order. It fails, and
// changes nothing, where a second run is to begin or none is there to abort:
// with KindConflict. Whatever else doesn't fit comes too late, and changes
// nothing.
func Step(l Life, e Event) (Life, []Effect, error) {
	switch e := e.(type) {
	case Begin:
		if l.phase != idle {
			return l, nil, protocol.Errorf(protocol.KindConflict, "a run is in progress")
		}
		return Life{phase: working}, nil, nil
	case Abort:
		return l.abort()
	case Done:
		return l.done(e.ExitCode)
	case Fail:
		if l.phase != working {
			return l, nil, nil
		}
		return Life{phase: failing, ending: true}, []Effect{End{}}, nil
	case Impatience:
		if l.phase != aborting {
			return l, nil, nil
		}
		return l.end()
	case Gone:
		return l.gone(e.Left)
	}
	return l, nil, nil
}

func (l Life) abort() (Life, []Effect, error) {
	switch l.phase {
	case idle:
		return l, nil, protocol.Errorf(protocol.KindConflict, "there is no active run")
	case working:
		l.phase = aborting
		return l, []Effect{Interrupt{}}, nil
	case failing:
		l.phase = aborting
	}
	return l, nil, nil
}

// done ends the turn. What an aborted one has started may still run.
func (l Life) done(exit int) (Life, []Effect, error) {
	switch l.phase {
	case working:
		return Life{}, []Effect{Complete{ExitCode: exit}}, nil
	case aborting:
		return l.end()
	}
	return l, nil, nil
}

// end ends the process, once.
func (l Life) end() (Life, []Effect, error) {
	if l.ending {
		return l, nil, nil
	}
	l.ending = true
	return l, []Effect{End{}}, nil
}

func (l Life) gone(left bool) (Life, []Effect, error) {
	complete := Complete{ExitCode: Unknown}
	switch l.phase {
	case idle:
		return l, nil, nil
	case aborting:
		complete.Aborted = true
		if !left {
			complete.ExitCode = 0
		}
	}
	return Life{}, []Effect{complete}, nil
}
