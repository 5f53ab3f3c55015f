package input

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// EnterDelay is the time between an execute's text and its Enter, so that the
// program doesn't take both for a paste.
const EnterDelay = 50 * time.Millisecond

// enter is what Enter types.
const enter = "\r"

// An execution is an execute whose Enter is still to be typed. It holds the
// room for the Enter.
type execution struct {
	term    uint64    // of the text; the Enter is typed under this term or not at all
	seq     uint64    // of the text
	written bool      // the agent has written the text
	due     time.Time // when the Enter may follow, once the text is written
}

// enterCost is what an Enter takes of the viewer's and the hub's room.
const enterCost = int64(len(enter) + Overhead)

// Execute types text and, EnterDelay later under the same term, Enter. If there
// is no room for both, it tells the viewer and returns false.
func (t *Typist) Execute(text string) (ok bool) {
	cost := int64(len(text)+Overhead) + enterCost
	switch {
	case len(text) == 0 || len(text) > protocol.MaxExecuteBytes:
		t.complain(protocol.Errorf(protocol.KindInvalid, "execute needs a text of 1 to %d bytes", protocol.MaxExecuteBytes))
	case !t.credit.TryAcquire(cost):
		t.complain(errExecuteBusy)
	case !t.queue.room.TryAcquire(cost):
		t.credit.Release(cost)
		t.complain(errExecuteBusy)
	default:
		t.queue.accept(t, message{input: []byte(text), cost: cost, execute: true})
		return true
	}
	return false
}

var (
	errExecuteBusy = protocol.Errorf(protocol.KindTooMany, "too much input waits to be written")
	errExecuteOnce = protocol.Errorf(protocol.KindTooMany, "the last execute is not done yet")
)

// execute queues the text of e on the link. The caller holds mu, and has checked
// that t may type under term.
func (in *Queue) execute(t *Typist, e message, term uint64) Link {
	if in.executions[t] != nil {
		in.release(t, e.cost)
		t.complain(errExecuteOnce)
		return nil
	}
	x := &execution{term: term, due: time.Now().Add(EnterDelay)}
	x.seq = in.send(t, e.input, e.cost-enterCost, term)
	if in.executions == nil {
		in.executions = map[*Typist]*execution{}
	}
	in.executions[t] = x
	in.executing.Store(true)
	return in.link
}

// send queues input that the hub counts itself, apart from what t types, and
// returns its number. Without a link it is sent on the next one. The caller
// holds mu.
func (in *Queue) send(t *Typist, input []byte, cost int64, term uint64) uint64 {
	in.executed++
	m := protocol.Input{Term: term, Seq: in.executed, Client: in.executor, Bytes: input}
	in.unacked = append(in.unacked, unackedInput{t, m, cost, time.Now(), false})
	in.metrics.Bytes.Add(float64(len(input)))
	if in.link != nil {
		in.link.Queue(m)
	}
	return in.executed
}

// wrote notes that the agent wrote all texts up to seq. Enters that are due
// follow. The caller holds mu.
func (in *Queue) wrote(seq uint64) {
	now := time.Now()
	for t, x := range in.executions {
		if x.seq <= seq {
			x.written = true
			in.enter(t, x, now)
		}
	}
}

// EnterDue types the Enters that are due.
func (in *Queue) EnterDue(now time.Time) {
	if !in.executing.Load() {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for t, x := range in.executions {
		in.enter(t, x, now)
	}
}

// enter types an Enter if it is due. A viewer who may no longer type under the
// text's term gets a refusal instead. The caller holds mu.
func (in *Queue) enter(t *Typist, x *execution, now time.Time) {
	if !x.written || now.Before(x.due) {
		return
	}
	in.forget(t)
	if reason, ok := in.state.MayType(t.ID, x.term); !ok {
		in.release(t, enterCost)
		in.refuse(t, reason, 0)
		return
	}
	in.send(t, []byte(enter), enterCost, x.term)
	if in.link != nil {
		in.link.Rouse()
	}
}

// NextEnter returns how long after now the next Enter is due, false if there is
// none. If its text isn't written by then, the Enter follows the agent's ack of
// it.
func (in *Queue) NextEnter(now time.Time) (wait time.Duration, ok bool) {
	if !in.executing.Load() {
		return 0, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, x := range in.executions {
		if due := x.due.Sub(now); (x.written || due > 0) && (!ok || due < wait) {
			wait, ok = due, true
		}
	}
	return wait, ok
}

// EnterAt changes when the typist's Enter is due, in tests.
func (t *Typist) EnterAt(due time.Time) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.queue.executions[t].due = due
}

// abandon drops t's Enter, if there is one. The caller holds mu.
func (in *Queue) abandon(t *Typist) {
	if in.executions[t] != nil {
		in.forget(t)
		in.release(t, enterCost)
	}
}

func (in *Queue) forget(t *Typist) {
	delete(in.executions, t)
	in.executing.Store(len(in.executions) > 0)
}
