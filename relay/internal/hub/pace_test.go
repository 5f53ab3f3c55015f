package hub

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
)

// paces checks the hub's next PACE.
func paces(a *attach, want protocol.Pace) {
	a.t.Helper()
	if m := hears[protocol.Pace](a); m != want {
		a.t.Errorf("%+v, want %+v", m, want)
	}
}

func TestWhoHoldsTheTerminalBack(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, Guest{Counts: true, Client: "page", Since: at(0)}) // has control
	y := w.joinAs(bob, Guest{Since: at(0)})
	z := w.joinAs(record(carol), Guest{Exact: true, Since: at(0)})
	not := w.joinAs(carol, Guest{Exact: true, Since: at(0)}) // may not
	for _, v := range []*watcher{x, y, z, not} {
		v.greeted()
	}
	a := w.attached()
	paces(a, protocol.Pace{ID: scoped("usr_alice", "page")})
	paces(a, protocol.Pace{ID: z.v.pacer})

	y.v.Say(protocol.ClientMessage{Type: protocol.ClientRequestControl})
	x.until(protocol.ServerControlRequested)
	x.v.Say(protocol.ClientMessage{Type: protocol.ClientGrantControl, To: "usr_bob"})
	proposal := hears[protocol.LeaseProposal](a)
	a.say(protocol.Leased{ID: proposal.ID, Lease: protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_bob", State: protocol.LeaseHeld}})
	got := map[protocol.Pace]bool{hears[protocol.Pace](a): true, hears[protocol.Pace](a): true}
	if !got[protocol.Pace{ID: scoped("usr_alice", "page"), Gone: true}] || !got[protocol.Pace{ID: y.v.pacer}] {
		t.Errorf("after a change of control: %+v", got)
	}
	z.leave()
	paces(a, protocol.Pace{ID: z.v.pacer, Gone: true})
	if n := testutil.ToFloat64(w.set.metrics.PaceSetters); n != 1 {
		t.Errorf("%v are counted", n)
	}
	if s := not.v.reader.Standing(); s.Paces || s.Exact {
		t.Error("exact without the capability")
	}
}

// A pace-setter's moves are told in steps: of one that acknowledges by its
// acks, of another by what its socket took.
func TestWhereTheyAre(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, Guest{Counts: true, Since: at(0)})
	z := w.joinAs(record(carol), Guest{Exact: true, Since: at(0)})
	r, s := reads(x), reads(z)
	x.greeted()
	z.greeted()
	a := w.attached()
	paces(a, protocol.Pace{ID: x.v.pacer})
	paces(a, protocol.Pace{ID: z.v.pacer})
	head := a.prints(0, protocol.PaceBytes-10)
	s.to(head)
	r.to(head)
	head = a.prints(head, protocol.PaceBytes+10)
	s.to(head)
	r.to(head)
	paces(a, protocol.Pace{ID: z.v.pacer, Offset: head}) // and of the other, nothing yet
	x.v.Ack(protocol.PaceBytes - 1)
	x.v.Ack(protocol.PaceBytes + 5)
	paces(a, protocol.Pace{ID: x.v.pacer, Offset: protocol.PaceBytes + 5})

	// A new stream hears of both at once, with where they are now.
	x.v.Ack(protocol.PaceBytes + 7)
	w.opens(protocol.TerminalOpened{Epoch: testEpoch, Offset: head, Head: head, Lease: held(3, 2)}, nil)
	a.stream.Close()
	a = w.attached()
	got := map[protocol.Pace]bool{hears[protocol.Pace](a): true, hears[protocol.Pace](a): true}
	if !got[protocol.Pace{ID: x.v.pacer, Offset: protocol.PaceBytes + 7}] || !got[protocol.Pace{ID: z.v.pacer, Offset: head}] {
		t.Errorf("on a new stream: %+v", got)
	}
}

// Of several sockets of a client the newest speaks for it, and when that is
// gone, the one before.
func TestTwoSocketsOfAPaceSetter(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	first := w.joinAs(alice, Guest{Counts: true, Client: "page", Since: at(0)})
	a := w.attached()
	head := a.prints(0, 1000)
	reads(first).to(head)
	second := w.joinAs(alice, Guest{Counts: true, Client: "page", Since: at(500)})
	reads(second).to(head)
	name := scoped("usr_alice", "page")
	paces(a, protocol.Pace{ID: name})
	paces(a, protocol.Pace{ID: name, Offset: 500})
	second.leave()
	paces(a, protocol.Pace{ID: name})
	first.leave()
	paces(a, protocol.Pace{ID: name, Gone: true})
	if n := testutil.ToFloat64(w.set.metrics.PaceSetters); n != 0 {
		t.Errorf("%v are counted", n)
	}
}

// A pace-setter that is merely behind the ring is fed from the log.
func TestAPaceSetterBehindTheRing(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	w.serves(0, 0)
	x := w.join(alice, at(0))
	other := w.join(bob, at(0))
	x.greeted()
	other.greeted()
	x.sink.block(true)
	a := w.attached()
	head, y := uint64(0), reads(other)
	for head < protocol.RingBytes*3/2 { // it keeps up, or it would fall out of the ring as well
		head = a.prints(head, head+protocol.RingBytes/4)
		y.to(head)
	}
	x.sink.block(false)
	r := reads(x)
	r.to(head)
	if r.resyncs != 0 {
		t.Errorf("%d resyncs", r.resyncs)
	}
}
