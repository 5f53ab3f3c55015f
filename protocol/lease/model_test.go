package lease_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/lease"
)

// An opKind is what an op does.
type opKind uint8

const (
	opPropose opKind = iota
	opSockets
	opExpire
	opTyped
	opRest
	opKinds
)

// An op is one call of a register. Its fields are small numbers, so that the
// fuzzer's bytes and the concurrent test's history can hold it.
type op struct {
	kind    opKind
	user    int   // index into users, 0 is nobody
	expect  int64 // propose: the revision, relative to the model's in model tests
	sockets int
	now     time.Duration // since start
	idle    bool          // propose: because the holder is idle
}

var (
	users  = []protocol.UserID{"", alice, bob, "carol"}
	grants = []protocol.GrantID{"", "gr_a", "gr_b", "gr_c"}
)

// A result is what an op returned and how the lease stood then.
type result struct {
	lease   protocol.Lease
	kind    protocol.Kind // of propose's error
	failed  bool
	changed bool
}

// model is the register written as one comparable value and one function, in
// another way than the register: it keeps when the holder left, not when the
// grace ends.
type model struct {
	revision, term uint64
	user           int
	leftAt         time.Duration // −1: present
	typedAt        time.Duration
	idle, taken    bool // taken: from one who was idle
}

func (m model) over(now time.Duration) bool {
	return m.user != 0 && m.leftAt >= 0 && now-m.leftAt >= protocol.ControlGrace
}

func (m model) lease(now time.Duration) protocol.Lease {
	l := protocol.Lease{Revision: m.revision, Term: m.term, Holder: users[m.user], GrantID: grants[m.user], Idle: m.idle}
	if m.taken {
		l.Reason = protocol.ReasonIdle
	}
	switch {
	case m.user == 0:
		l.State = protocol.LeaseFree
	case m.leftAt < 0:
		l.State = protocol.LeaseHeld
	default:
		l.State = protocol.LeaseGrace
		l.MSLeft = max((protocol.ControlGrace-(now-m.leftAt)+time.Millisecond-1)/time.Millisecond, 0).Nanoseconds()
	}
	return l
}

// step returns the model after o, and what o must have returned.
func (m model) step(o op) (model, result) {
	before := m
	var res result
	switch o.kind {
	case opPropose:
		switch {
		case uint64(o.expect) != m.revision || m.over(o.now) || o.idle && !m.idle:
			res.failed, res.kind = true, protocol.KindConflict
		case o.user != m.user:
			m.user, m.leftAt, m.idle, m.taken = o.user, -1, false, o.idle && o.user != 0
			if o.user != 0 {
				m.typedAt = o.now
			}
			if o.user != 0 {
				m.term++
			}
			m.revision++
		}
		if !res.failed {
			m = m.count(o)
		}
	case opSockets:
		if o.user == m.user {
			m = m.expire(o.now).count(o)
		}
	case opExpire:
		m = m.expire(o.now)
	case opTyped:
		m.typedAt = o.now
		if m.idle {
			m.idle = false
			m.revision++
		}
	case opRest:
		if m.user != 0 && m.leftAt < 0 && !m.idle && o.now-m.typedAt >= protocol.ControlIdle {
			m.idle = true
			m.revision++
		}
	}
	res.changed = m.revision != before.revision
	res.lease = m.lease(o.now)
	return m, res
}

// count notes how many sockets o's user has.
func (m model) count(o op) model {
	if away := m.leftAt >= 0; o.user == 0 || o.user != m.user || away == (o.sockets == 0) {
		return m
	}
	m.leftAt = -1
	if o.sockets == 0 {
		m.leftAt = o.now
	}
	m.revision++
	return m
}

func (m model) expire(now time.Duration) model {
	if m.over(now) {
		m.user, m.leftAt, m.idle, m.taken = 0, -1, false, false
		m.revision++
	}
	return m
}

// apply calls r as o says.
func apply(r *lease.Register, o op) result {
	now := at(o.now)
	before := r.Lease(now)
	var res result
	switch o.kind {
	case opPropose:
		p := to(uint64(o.expect), users[o.user], grants[o.user])
		if o.idle {
			p.Next.Reason = protocol.ReasonIdle
		}
		_, err := r.Propose(p, o.sockets, now)
		if err != nil {
			res.failed, res.kind = true, protocol.KindOf(err)
		}
	case opSockets:
		r.Sockets(users[o.user], o.sockets, now)
	case opExpire:
		r.Expire(now)
	case opTyped:
		r.Typed(now)
	case opRest:
		r.Rest(now)
	}
	res.lease = r.Lease(now)
	res.changed = res.lease.Revision != before.Revision
	return res
}

// A checker runs ops on a register beside the model and checks what must hold
// whatever the model says.
type checker struct {
	r       *lease.Register
	m       model
	holders map[uint64]protocol.UserID // by term
}

func newChecker() *checker {
	return &checker{r: lease.New(), m: model{leftAt: -1}, holders: map[uint64]protocol.UserID{}}
}

// run applies o, whose expect is relative to the revision and whose now to the
// time of the op before.
func (c *checker) run(t rapid.TB, o op) {
	o.expect += int64(c.m.revision)
	before := c.r.Lease(at(o.now))
	next, want := c.m.step(o)
	got := apply(c.r, o)
	c.m = next
	if got != want {
		t.Fatalf("%+v\ngot  %+v\nwant %+v", o, got, want)
	}
	after := got.lease
	switch {
	case after.Revision < before.Revision, after.Revision == before.Revision && after != before:
		t.Fatalf("revision: %+v became %+v", before, after)
	case after.Term != before.Term && (after.Term != before.Term+1 || after.Holder == "" || after.Holder == before.Holder),
		after.Term == before.Term && after.Holder != "" && after.Holder != before.Holder:
		t.Fatalf("term: %+v became %+v", before, after)
	}
	if after.Holder != "" {
		if first, known := c.holders[after.Term]; known && first != after.Holder {
			t.Fatalf("term %d had %s and has %s", after.Term, first, after.Holder)
		}
		c.holders[after.Term] = after.Holder
	}
	c.input(t, after)
	deadline, ok := c.r.Deadline()
	if ok != (after.State == protocol.LeaseGrace) || ok && !deadline.After(at(o.now)) != (after.MSLeft == 0) {
		t.Fatalf("deadline %v, %v beside %+v", deadline, ok, after)
	}
	if c.r.Claimed() != (len(c.holders) > 0) {
		t.Fatal("claimed")
	}
}

// input tries every term there has been, and the next.
func (c *checker) input(t rapid.TB, l protocol.Lease) {
	for term := range l.Term + 2 {
		_, ok := c.r.Check(term)
		if want := l.State != protocol.LeaseFree && term == l.Term; ok != want {
			t.Fatalf("input of term %d passes: %v, under %+v", term, ok, l)
		}
	}
}

// steps are the times between two ops: around the grace, and ordinary ones.
var steps = []time.Duration{
	0, 1, time.Millisecond, time.Second, 9999 * time.Millisecond,
	protocol.ControlGrace - 1, protocol.ControlGrace, protocol.ControlGrace + 1, 10_001 * time.Millisecond,
	protocol.ControlIdle - 1, protocol.ControlIdle,
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChecker()
		var now time.Duration
		draw := func(t *rapid.T, kind opKind) {
			now += rapid.SampledFrom(steps).Draw(t, "step")
			c.run(t, op{
				kind: kind, user: rapid.IntRange(0, len(users)-1).Draw(t, "user"),
				expect:  int64(rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(t, "expect")),
				sockets: rapid.IntRange(0, 2).Draw(t, "sockets"), now: now, idle: rapid.IntRange(0, 3).Draw(t, "idle") == 0,
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"propose": func(t *rapid.T) { draw(t, opPropose) },
			"sockets": func(t *rapid.T) { draw(t, opSockets) },
			"expire":  func(t *rapid.T) { draw(t, opExpire) },
			"typed":   func(t *rapid.T) { draw(t, opTyped) },
			"rest":    func(t *rapid.T) { draw(t, opRest) },
		})
	})
}

// FuzzRegister reads each pair of bytes as one op.
func FuzzRegister(f *testing.F) {
	f.Add([]byte{0x00, 0x14, 0x01, 0x04, 0x02, 0x06})
	f.Add([]byte{0x00, 0x14, 0x01, 0x04, 0x01, 0x54, 0x01, 0x04, 0x02, 0x60})
	f.Add([]byte{0x00, 0x14, 0x00, 0x18, 0x00, 0x10, 0x04, 0x14})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newChecker()
		var now time.Duration
		for ; len(data) >= 2 && c.m.revision < 100; data = data[2:] {
			now += steps[int(data[1]>>5)*len(steps)/8]
			c.run(t, op{
				kind: opKind(data[0]&7) % opKinds, idle: data[0]&32 > 0, expect: int64(data[0]>>3&1) * (1 - int64(data[0]>>4&1)*2),
				user: int(data[1] >> 2 & 3), sockets: int(data[1]>>4&1) + int(data[1]&1), now: now,
			})
		}
	})
}

// registerModel is the model of TestModel as porcupine reads it.
var registerModel = porcupine.Model{
	Init: func() any { return model{leftAt: -1} },
	Step: func(state, input, output any) (bool, any) {
		next, want := state.(model).step(input.(op))
		return output.(result) == want, next
	},
}

// A locked register is how an owner shares one.
type locked struct {
	mu sync.Mutex
	r  *lease.Register
}

func (l *locked) apply(o op) result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return apply(l.r, o)
}

func (l *locked) lease() protocol.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Lease(start)
}

// TestLinearizable has relays propose, users come and go, and the timer fire at
// once. What each of them saw must be explained by one order of the calls.
func TestLinearizable(t *testing.T) {
	const clients, calls = 6, 300
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	shared := &locked{r: lease.New()}
	var clock atomic.Int64 // the register's time, in milliseconds; each call takes some
	histories := make([][]porcupine.Operation, clients)
	begin := time.Now()
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() { // the test waits below
			random := rand.New(rand.NewPCG(seed, uint64(id)))
			for range calls {
				seen := shared.lease() // may be old by the time of the call
				o := op{
					kind:    []opKind{opPropose, opSockets, opSockets, opExpire, opTyped, opRest}[random.IntN(6)],
					user:    random.IntN(len(users)),
					sockets: random.IntN(2),
					expect:  int64(seen.Revision),
				}
				if o.kind == opSockets { // those of others don't matter
					o.user = slices.Index(users, seen.Holder)
				}
				runtime.Gosched()
				o.now = time.Duration(clock.Add(random.Int64N(6000))) * time.Millisecond
				call := time.Since(begin).Nanoseconds()
				res := shared.apply(o)
				histories[id] = append(histories[id], porcupine.Operation{
					ClientId: id, Input: o, Output: res, Call: call, Return: time.Since(begin).Nanoseconds(),
				})
			}
		})
	}
	all.Wait()
	var history []porcupine.Operation
	outcomes := map[string]int{}
	for _, h := range histories {
		history = append(history, h...)
		for _, operation := range h {
			outcomes[outcome(operation)]++
		}
	}
	if result := porcupine.CheckOperationsTimeout(registerModel, history, 3*time.Minute); result != porcupine.Ok {
		t.Fatalf("history of %d calls: %s", len(history), result)
	}
	t.Log(outcomes)
	for _, want := range []string{"proposal taken", "proposal refused", "sockets changed", "expired"} {
		if outcomes[want] == 0 {
			t.Errorf("no call ended with %q: the history shows nothing", want)
		}
	}
}

func outcome(operation porcupine.Operation) string {
	o, res := operation.Input.(op), operation.Output.(result)
	switch {
	case o.kind == opPropose && res.failed:
		return "proposal refused"
	case !res.changed:
		return "no change"
	case o.kind == opPropose:
		return "proposal taken"
	case res.lease.State == protocol.LeaseFree:
		return "expired"
	}
	return "sockets changed"
}

// TestLinearizableHasTeeth shows porcupine what must not happen: two proposals
// of one revision are both taken.
func TestLinearizableHasTeeth(t *testing.T) {
	taken := func(user int) (op, result) {
		_, res := model{leftAt: -1}.step(op{kind: opPropose, user: user, sockets: 1})
		return op{kind: opPropose, user: user, sockets: 1}, res
	}
	a, aRes := taken(1)
	b, bRes := taken(2)
	both := []porcupine.Operation{
		{ClientId: 0, Input: a, Output: aRes, Call: 0, Return: 10},
		{ClientId: 1, Input: b, Output: bRes, Call: 0, Return: 10},
	}
	if porcupine.CheckOperations(registerModel, both) {
		t.Fatal("two holders of one lease pass for linearizable")
	}
	after, _ := model{leftAt: -1}.step(a)
	_, both[1].Output = after.step(b)
	if !porcupine.CheckOperations(registerModel, both) || bRes.kind == protocol.KindConflict {
		t.Fatal("a taken and a refused proposal don't")
	}
}
