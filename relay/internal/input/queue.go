// Package input carries viewers' input to the agent: in order, under the term
// in which it was typed, and no byte twice.
//
// A [Queue] belongs to one terminal, a [Typist] to one of its viewers. Queue.mu
// guards both. It is held while adding to a link's queue or a viewer's outbox,
// never during a write.
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
	// Queue adds m to the messages to be written, without blocking. Rouse or Flush
	// must follow.
	Queue(m protocol.Message)
	// Rouse makes the link's own writer write them.
	Rouse()
	// Flush writes them. It may block on the tunnel.
	Flush()
}

// A Queue carries keystrokes from viewers to the agent. They go straight from
// the goroutine that reads the socket to the tunnel, not through run: two more
// goroutine switches would cost more than the key. run says who may type; the
// agent checks again. A viewer's frames still stay in order: what it types
// after its own request to yield control waits here until run has decided that.
type Queue struct {
	// Static after construction.
	metrics  *Metrics
	room     *semaphore.Weighted // room for all viewers together
	over     context.Context     // ends with the hub
	executor string              // the client id of executes

	asks chan struct{} // tells the hub to look at takers and typist

	executing atomic.Bool  // there are executions; set under mu
	typedAt   atomic.Int64 // the oldest key since the terminal last showed something, Unix nanoseconds; 0: none

	// Guarded by mu.
	mu        sync.Mutex
	state     turn.State
	link      Link // nil while the sandbox is away
	next      Link // becomes link with the next state, which came with it
	ended     bool
	unacked   []unackedInput     // oldest first; sent again on the next link
	overtaken []unackedInput     // typed under another term, while there was no link; about to be refused
	yields    map[*Typist]bool   // those with an undecided request to yield control
	takers    map[*Typist]bool   // those whose key is to take the terminal
	leader    turn.SocketID      // who gives the terminal its size; 0: nobody
	typist    *Typist            // has typed since, and may lead from now on; nil: nobody
	clients   map[string]*Typist // by client id, for numbered input: the newest of the client's sockets

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

// Asks receives when Asked has something new.
func (in *Queue) Asks() <-chan struct{} { return in.asks }

// Room is the room for all typists' input together.
func (in *Queue) Room() *semaphore.Weighted { return in.room }

// Undecided returns how many typists wait for a decision about control, or for
// the Enter of an execute.
func (in *Queue) Undecided() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.yields) + len(in.takers) + len(in.executions)
	if n == 0 && in.executing.Load() {
		return 1 // there may be an Enter that the hub has to time
	}
	return n
}

// An unackedInput is input that the agent has not confirmed yet.
type unackedInput struct {
	t     *Typist
	input protocol.Input
	cost  int64
	at    time.Time // when it came
	later bool      // its client has to repeat an earlier one first
}

// seq returns the client's number of the input, 0 for none.
func (u unackedInput) seq() uint64 {
	if u.input.Client != u.t.Client {
		return 0
	}
	return u.input.Seq
}

// A message is one message of input.
type message struct {
	input []byte
	cost  int64  // its share of the viewer's credit and the hub's queue
	seq   uint64 // counted by the client; 0: the hub counts
	term  uint64 // under which it was typed, if seq isn't 0
	at    time.Time

	execute bool // Enter follows; cost includes it
	behind  int  // how many requests to yield control its viewer made before it
	late    bool // it can't take a free terminal: it already asked, or follows a request to yield
}

// accept passes on what t typed, under the present term, or tells t why not. It
// may block on the tunnel only.
func (in *Queue) accept(t *Typist, e message) {
	e.at = time.Now()
	in.mu.Lock()
	e.behind = t.yieldsRead
	l := in.pass(t, e)
	in.mu.Unlock()
	if l != nil {
		l.Flush()
	}
}

// pass queues e on the link, which it returns, or refuses it, or lets it wait.
// The caller holds mu.
func (in *Queue) pass(t *Typist, e message) Link {
	reason, ok, term := protocol.RefusalReason(""), false, in.termOf(e)
	switch {
	case t.gone:
		in.release(t, e.cost)
		return nil
	case !t.attached || e.behind > t.yieldsDone || t.taking != takesNothing: // whether it has control is being decided
		e.late = e.late || e.behind > t.yieldsDone
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

// reserve takes room for input. It waits until there is some, ctx ends or the
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

// refuse says that input was not written, to the socket that it came by, or to
// the client's present one. The caller holds mu.
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

// undo refuses input that was passed on, and drops an Enter that would follow
// it. The caller holds mu.
func (in *Queue) undo(u unackedInput, reason protocol.RefusalReason) {
	in.refuse(u.t, reason, u.seq())
	if x := in.executions[u.t]; x != nil && u.input.Client == in.executor && x.seq == u.input.Seq {
		in.abandon(u.t)
	}
}

// drop refuses input that holds no room.
func (in *Queue) drop(t *Typist, reason protocol.RefusalReason, seq uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.refuse(t, reason, seq)
}

// Follow sets the state of control, after each turn and before anybody is told
// of it: a client that hears that the sandbox is back repeats refused input,
// and there must be a link by then.
func (in *Queue) Follow(state turn.State) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.state = state
	if in.next != nil {
		in.use(in.next)
	}
}

// Expect sets the link that is used from the next state on.
func (in *Queue) Expect(l Link) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.next = l
}

// Shown notes that the terminal has shown something. It counts as the echo of
// what was typed before.
func (in *Queue) Shown() {
	if in.typedAt.Load() == 0 { // as for most output
		return
	}
	took := time.Since(time.Unix(0, in.typedAt.Swap(0)))
	if 0 <= took && took <= longestEcho { // the clock may have jumped
		in.metrics.Echo.Observe(took.Seconds())
	}
}

// Attach lets the typist type. Input from before the greeting comes first.
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

// judge passes on or refuses t's waiting input, or lets it wait on. The caller
// holds mu.
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

// Hold makes later input wait for a yield request that is about to be posted.
func (t *Typist) Hold() {
	in := t.queue
	in.mu.Lock()
	defer in.mu.Unlock()
	t.yieldsRead++
	if !t.gone {
		in.yields[t] = true
	}
}

// Heard notes that run has a yield request of the typist and decides it next.
func (t *Typist) Heard() {
	in := t.queue
	in.mu.Lock()
	defer in.mu.Unlock()
	t.yieldsHeard++
}

// Resume passes on input that waited for yield requests decided by now.
func (in *Queue) Resume() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for t := range in.yields {
		t.yieldsDone = t.yieldsHeard - in.state.Undecided(t.ID)
		if t.yieldsDone == t.yieldsRead {
			delete(in.yields, t)
		}
		in.judge(t)
	}
	in.takenBy()
}

// Leave removes the typist. Its input is still written, but no Enter follows.
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

// Connect makes l the link, if it isn't, and refuses overtaken input.
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

// use makes l the link. Unacknowledged input goes first: the agent knows what
// it has written, so nothing is typed twice. Two kinds of input will be
// refused: what was typed under another term, and what is behind a momentary
// refusal, which the agent would take for a repetition when it comes again. The
// caller holds mu.
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

// Acked notes that the agent wrote all input of a client up to a number, and
// tells the client's present socket.
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

// Refused notes that the agent did not write one input.
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

// End refuses all input that waits for the agent, and all later input.
func (in *Queue) End() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = true
	in.settle(func(u unackedInput) bool {
		in.undo(u, protocol.RefusedEnded)
		return true
	})
}

// settle removes the unacknowledged inputs for which done is true, and frees
// their room. The caller holds mu.
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
