// Package input carries what viewers type to the agent: in order, under the term in
// which it was typed, and no byte twice.
//
// A [Queue] is one terminal's, a [Typist] one viewer's part in it. Queue.mu guards
// both. It is held while a link's queue or a viewer's outbox is added to, and never
// while something is written.
package input

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// A Link is the stream to the agent.
type Link interface {
	// Queue adds m to what waits to be written. It doesn't wait; Rouse or Flush
	// must follow.
	Queue(m protocol.Message)
	// Rouse has the link's own writer write what waits.
	Rouse()
	// Flush writes what waits. It waits for the tunnel.
	Flush()
}

// A Queue is the way of keystrokes from viewers to the agent. It alone goes
// past run, from the goroutine that read the socket straight to the tunnel: a
// key is not worth two more goroutines' turns. run says who may type; the agent
// checks again. A viewer's frames stay in order all the same: what it types
// behind its own wish to yield control waits here until run has decided that.
type Queue struct {
	// Static after construction.
	metrics  *Metrics
	room     *semaphore.Weighted // room for all viewers together
	over     context.Context     // ends with the hub
	executor string              // the client as which executes are typed

	asks chan struct{} // the hub is to look at takers and typist

	executing atomic.Bool  // there are executions; set under mu
	typedAt   atomic.Int64 // the oldest key since the terminal last showed something, Unix nanoseconds; 0: none

	// Guarded by mu.
	mu        sync.Mutex
	state     turn.State
	link      Link // nil while the sandbox is away
	next      Link // about to be link: what there is to know of it comes with the next state
	ended     bool
	unacked   []unackedInput     // oldest first; sent again on the next link
	overtaken []unackedInput     // by another term, while there was no link; about to be refused
	yields    map[*Typist]bool   // whose wish to yield control isn't decided
	takers    map[*Typist]bool   // whose key is to take the terminal
	leader    turn.SocketID      // who gives the terminal its size; 0: nobody
	typist    *Typist            // who has typed since, and may lead from now on; nil: nobody
	clients   map[string]*Typist // whose input is numbered by its client: of a client's sockets the newest

	executions map[*Typist]*execution
	executed   uint64 // inputs of executor
}

// New returns a queue that lives until over ends.
func New(over context.Context, metrics *Metrics) *Queue {
	return &Queue{
		metrics: metrics, room: semaphore.NewWeighted(protocol.MaxInputQueued), over: over,
		asks: make(chan struct{}, 1), takers: map[*Typist]bool{},
		yields: map[*Typist]bool{}, clients: map[string]*Typist{}, executor: rand.Text(),
	}
}

// Asks says that Asked has something to say.
func (in *Queue) Asks() <-chan struct{} { return in.asks }

// Room is the room for the input of all typists together.
func (in *Queue) Room() *semaphore.Weighted { return in.room }

// Undecided returns how many typists wait until it is decided who has control, or
// for the Enter of an execute.
func (in *Queue) Undecided() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.yields) + len(in.takers) + len(in.executions)
	if n == 0 && in.executing.Load() {
		return 1 // the hub would look for an Enter that there isn't
	}
	return n
}

// An unackedInput is input that the agent has not confirmed yet.
type unackedInput struct {
	t     *Typist
	input protocol.Input
	cost  int64
	at    time.Time // when it came
	later bool      // its client has to send an earlier one again first
}

// seq returns what the viewer's client calls the input, 0 for nothing.
func (u unackedInput) seq() uint64 {
	if u.input.Client != u.t.Client {
		return 0
	}
	return u.input.Seq
}

// typed is one message of input.
type message struct {
	input []byte
	cost  int64  // what it took of the viewer's credit and the hub's queue
	seq   uint64 // counted by the client; 0 when the hub is to count
	term  uint64 // under which it was typed, if seq is not 0
	at    time.Time

	execute bool // Enter is to follow; cost includes it
	behind  int  // so many wishes of its viewer to yield control
	late    bool // it takes no free terminal: it has asked for it, or was typed behind a wish to yield
}

// accept passes on what t typed, under the term of this moment, or tells t why
// not. It waits only for the tunnel.
func (in *Queue) accept(t *Typist, e message) {
	e.at = time.Now()
	in.mu.Lock()
	e.behind = t.wishes
	l := in.pass(t, e)
	in.mu.Unlock()
	if l != nil {
		l.Flush()
	}
}

// pass queues e on the link, which it returns, or refuses it, or has it wait. The
// caller holds mu.
func (in *Queue) pass(t *Typist, e message) Link {
	reason, ok, term := protocol.RefusalReason(""), false, in.termOf(e)
	switch {
	case t.gone:
		in.release(t, e.cost)
		return nil
	case !t.attached || e.behind > t.decided || t.taking != takesNothing: // whether it has control is being decided
		e.late = e.late || e.behind > t.decided
		t.waiting = append(t.waiting, e)
		return nil
	case in.ended:
		reason = protocol.RefusedEnded
	case t.gate.behind(e.seq):
		reason = t.gate.reason
	case in.link == nil:
		reason = protocol.RefusedWaiting
	case in.takes(t, e):
		in.take(t, e)
		return nil
	default:
		reason, ok = in.state.MayType(t.ID, term)
	}
	if !ok {
		in.release(t, e.cost)
		in.refuse(t, reason, e.seq)
		return nil
	}
	if e.execute {
		return in.execute(t, e, term)
	}
	t.gate.passed(e.seq)
	input := protocol.Input{Term: term, Seq: e.seq, Client: t.Client, Bytes: e.input}
	if e.seq == 0 {
		t.nextSeq++
		input.Seq = t.nextSeq
	}
	in.typedBy(t)
	in.unacked = append(in.unacked, unackedInput{t, input, e.cost, e.at, false})
	in.metrics.Bytes.Add(float64(len(e.input)))
	in.typedAt.CompareAndSwap(0, e.at.UnixNano())
	in.link.Queue(input)
	return in.link
}

// reserve takes room for input, waiting until there is some, ctx ends or the
// hub is over.
func (in *Queue) reserve(ctx context.Context, room *semaphore.Weighted, cost int64) error {
	if room.TryAcquire(cost) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(in.over, cancel)
	defer stop()
	return room.Acquire(ctx, cost)
}

func (in *Queue) release(t *Typist, cost int64) {
	t.credit.Release(cost)
	in.room.Release(cost)
}

// refuse tells that input was not written: the socket that it came by, or the
// one that its client has now. The caller holds mu.
func (in *Queue) refuse(t *Typist, reason protocol.RefusalReason, seq uint64) {
	in.metrics.Refused.WithLabelValues(string(reason)).Inc()
	if !t.Counts {
		seq = 0
	} else if newest := in.clients[t.Client]; newest != nil && t.gone {
		t = newest
	}
	t.gate.refused(seq, reason)
	t.Outbox.Tell(protocol.InputDropped{Reason: reason, Seq: seq})
}

// undo refuses input that was passed on, and an Enter that would follow it. The
// caller holds mu.
func (in *Queue) undo(u unackedInput, reason protocol.RefusalReason) {
	in.refuse(u.t, reason, u.seq())
	if x := in.executions[u.t]; x != nil && u.input.Client == in.executor && x.seq == u.input.Seq {
		in.abandon(u.t)
	}
}

// drop refuses input that took no room.
func (in *Queue) drop(t *Typist, reason protocol.RefusalReason, seq uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refuse(t, reason, seq)
}

// Follow takes over who may type, after each turn and before anybody is told of
// it: a client that hears that the sandbox is back sends again what was refused,
// and there must be a link by then.
func (in *Queue) Follow(state turn.State) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.state = state
	if in.next != nil {
		in.use(in.next)
	}
}

// Expect has l used from the next state on, which is the one that came with l.
func (in *Queue) Expect(l Link) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.next = l
}

// Shown notes that the terminal has shown something, which is taken for the echo
// of what was typed before.
func (in *Queue) Shown() {
	if in.typedAt.Load() == 0 { // as for most output
		return
	}
	took := time.Since(time.Unix(0, in.typedAt.Swap(0)))
	if 0 <= took && took <= longestEcho { // the clock may have jumped
		in.metrics.Echo.Observe(took.Seconds())
	}
}

// Attach lets the typist type, beginning with what it typed before it was greeted.
func (t *Typist) Attach() {
	in := t.queue
	in.mu.Lock()
	defer in.mu.Unlock()
	t.attached = true
	if newest := in.clients[t.Client]; t.Counts && (newest == nil || newest.ID < t.ID) {
		in.clients[t.Client] = t
	}
	in.judge(t)
}

// judge passes on or refuses what t has typed and had to wait for, unless it
// still has to. The caller holds mu.
func (in *Queue) judge(t *Typist) {
	waiting := t.waiting
	t.waiting = nil
	for _, e := range waiting {
		in.pass(t, e)
	}
	if in.link != nil && len(waiting) > 0 {
		in.link.Rouse()
	}
}

// Hold has what is typed from now on wait for a wish that is about to be posted.
func (t *Typist) Hold() {
	in := t.queue
	in.mu.Lock()
	defer in.mu.Unlock()
	t.wishes++
	if !t.gone {
		in.yields[t] = true
	}
}

// Heard: a wish of the typist has reached run, which takes its step next.
func (t *Typist) Heard() {
	in := t.queue
	in.mu.Lock()
	defer in.mu.Unlock()
	t.heard++
}

// Resume passes on what waited for wishes that are decided by now.
func (in *Queue) Resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for t := range in.yields {
		t.decided = t.heard - in.state.Undecided(t.ID)
		if t.decided == t.wishes {
			delete(in.yields, t)
		}
		in.judge(t)
	}
	in.takenBy()
}

// Leave forgets the typist. What it has typed is still written, but no Enter follows.
func (t *Typist) Leave() {
	in := t.queue
	in.mu.Lock()
	defer in.mu.Unlock()
	t.gone = true
	if in.clients[t.Client] == t {
		delete(in.clients, t.Client)
	}
	for _, e := range t.waiting {
		in.release(t, e.cost)
	}
	t.waiting = nil
	delete(in.yields, t)
	delete(in.takers, t)
	t.taking = takesNothing
	in.abandon(t)
}

// Connect uses l, if it isn't used yet, and refuses what l has overtaken.
func (in *Queue) Connect(l Link) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.link != l {
		in.use(l)
	}
	reason := protocol.RefusedStaleTerm
	if in.state.Locked() {
		reason = protocol.RefusedAgentRunning
	}
	overtaken := in.overtaken
	in.overtaken = nil
	for _, u := range overtaken {
		if u.later && u.input.Term == in.state.Term() {
			in.undo(u, protocol.RefusedWaiting)
		} else {
			in.undo(u, reason)
		}
		in.release(u.t, u.cost)
	}
	l.Rouse()
}

// use has l carry the input from now on. Unacknowledged input goes first: the
// agent knows what it has written, so nothing is typed twice. What was typed
// under another term will be refused, as will what is behind input that was
// refused for the moment: the agent would take that for a repetition when it comes
// again. The caller holds mu.
func (in *Queue) use(l Link) {
	in.link, in.next = l, nil
	kept := in.unacked[:0]
	for _, u := range in.unacked {
		if u.later || u.input.Term != in.state.Term() {
			in.overtaken = append(in.overtaken, u)
			continue
		}
		l.Queue(u.input)
		kept = append(kept, u)
	}
	clear(in.unacked[len(kept):])
	in.unacked = kept
}

func (in *Queue) Disconnect() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.link, in.next = nil, nil
}

// Acked: the agent wrote all input of a client up to a sequence number. The
// socket that the client has now hears of it.
func (in *Queue) Acked(m protocol.InputAck) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if t := in.clients[m.Client]; t != nil {
		t.gate.written(m.Seq)
		t.Outbox.Confirm(m.Seq)
	}
	now := time.Now()
	in.settle(func(u unackedInput) bool {
		written := u.input.Client == m.Client && u.input.Seq <= m.Seq
		if written {
			in.metrics.Acks.Observe(now.Sub(u.at).Seconds())
		}
		return written
	})
	if m.Client == in.executor {
		in.wrote(m.Seq)
	}
}

// Refused: the agent did not write one input.
func (in *Queue) Refused(m protocol.InputRefused) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.settle(func(u unackedInput) bool {
		if u.input.Client != m.Client || u.input.Seq != m.Seq {
			return false
		}
		in.undo(u, m.Reason)
		return true
	})
	if Momentary(m.Reason) {
		for i, u := range in.unacked {
			in.unacked[i].later = u.later || u.seq() > m.Seq && u.input.Client == m.Client
		}
	}
}

// End refuses everything that waits for the agent, and whatever comes.
func (in *Queue) End() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.settle(func(u unackedInput) bool {
		in.undo(u, protocol.RefusedEnded)
		return true
	})
}

// settle removes the unacknowledged inputs that done says are, and frees their
// room. The caller holds mu.
func (in *Queue) settle(done func(unackedInput) bool) {
	kept := in.unacked[:0]
	for _, u := range in.unacked {
		if done(u) {
			in.release(u.t, u.cost)
		} else {
			kept = append(kept, u)
		}
	}
	clear(in.unacked[len(kept):])
	in.unacked = kept
}
