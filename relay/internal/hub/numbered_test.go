package hub

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/input"
)

// numbered hands over input of terminal.v2.
func (x *watcher) numbered(seq, term uint64, input string) {
	x.v.TypeNumbered(protocol.BrowserInput{Seq: seq, Term: term, Bytes: []byte(input)})
}

// drops checks that the next frame refuses one input.
func (x *watcher) drops(seq uint64, reason protocol.RefusalReason) {
	x.t.Helper()
	var m protocol.InputDropped
	x.gets(protocol.ServerInputRefused).decode(x.t, &m)
	if m.Seq != seq || m.Reason != reason {
		x.t.Errorf("%+v, want %d for %s", m, seq, reason)
	}
}

// written reads until the frame that confirms input up to seq.
func (x *watcher) written(seq uint64) {
	x.t.Helper()
	for {
		var m protocol.InputWritten
		x.until(protocol.ServerInputAck).decode(x.t, &m)
		if m.Seq > seq {
			x.t.Fatalf("input up to %d is confirmed, want %d", m.Seq, seq)
		}
		if m.Seq == seq {
			return
		}
	}
}

// page is a client with a name, which numbers its input.
func page() Guest { return Guest{Counts: true, Client: "page", Since: at(0)} }

func TestNumberedInput(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, page())
	x.numbered(1, 2, "before the greeting")
	x.greeted()
	a := w.attached()
	x.numbered(2, 2, "b")
	x.numbered(5, 2, "c") // it may leave some out
	for _, want := range []protocol.Input{{Seq: 1, Bytes: []byte("before the greeting")}, {Seq: 2, Bytes: []byte("b")}, {Seq: 5, Bytes: []byte("c")}} {
		in := hears[protocol.Input](a)
		if in.Seq != want.Seq || in.Term != 2 || in.Client != scoped("usr_alice", "page") || string(in.Bytes) != string(want.Bytes) {
			t.Errorf("%+v, want %+v", in, want)
		}
	}
	name := scoped("usr_alice", "page")
	a.say(protocol.InputAck{Client: name, Seq: 2})
	x.written(2)
	a.say(protocol.InputAck{Client: "another", Seq: 9}, protocol.InputAck{Client: name, Seq: 5})
	x.written(5)

	x.numbered(6, 1, "of an earlier term")
	x.drops(6, protocol.RefusedStaleTerm)
	x.numbered(7, 3, "of a later one")
	x.drops(7, protocol.RefusedStaleTerm)
	y := w.joinAs(bob, page())
	y.greeted()
	y.numbered(1, 2, "not mine")
	y.drops(1, protocol.RefusedNotController)
	y.numbered(2, 2, "nor this")
	y.drops(2, protocol.RefusedNotController)

	x.numbered(8, 2, "x")
	hears[protocol.Input](a)
	a.say(protocol.InputRefused{Client: name, Seq: 8, Reason: protocol.RefusedBusy})
	x.drops(8, protocol.RefusedBusy)
}

// Beyond its room input is refused, each message by its number, and the socket
// is read on.
func TestNumberedInputIsBounded(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, page())
	x.greeted()
	a := w.attached()
	piece := string(make([]byte, protocol.MaxInputBytes))
	fits := uint64(protocol.MaxInputUnacked / (protocol.MaxInputBytes + input.Overhead))
	for seq := uint64(1); seq <= fits+2; seq++ {
		x.numbered(seq, 2, piece)
	}
	x.drops(fits+1, protocol.RefusedBusy)
	x.drops(fits+2, protocol.RefusedBusy)
	a.say(protocol.InputAck{Client: x.v.keys.Client, Seq: fits})
	x.written(fits)
	x.numbered(fits+3, 2, "fits, but would overtake")
	x.drops(fits+3, protocol.RefusedBusy)
	x.numbered(fits+1, 2, "again")
	x.numbered(fits+2, 2, "and what is behind it")
	want := uint64(1)
	for ; want <= fits+2; want++ {
		if in := hears[protocol.Input](a); in.Seq != want {
			t.Fatalf("input %d was passed on, want %d", in.Seq, want)
		}
	}
	x.numbered(want, 2, piece+"x")
	x.gets(protocol.ServerError)
	x.drops(want, protocol.RefusedBusy)
}

// A socket is lost with input under way: whoever is the client's socket when
// the answer comes gets it.
func TestInputAcrossSockets(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, page())
	x.greeted()
	a := w.attached()
	x.numbered(1, 2, "a")
	x.numbered(2, 2, "b")
	hears[protocol.Input](a)
	hears[protocol.Input](a)
	y := w.joinAs(alice, page()) // before the old one is known to be dead
	y.greeted()
	a.say(protocol.InputAck{Client: x.v.keys.Client, Seq: 1})
	y.written(1)
	y.numbered(2, 2, "b") // again: the agent writes it once
	if in := hears[protocol.Input](a); in.Seq != 2 || in.Client != x.v.keys.Client {
		t.Errorf("%+v", in)
	}
	x.leave()
	a.say(protocol.InputAck{Client: x.v.keys.Client, Seq: 2})
	y.written(2)
	if it, ok := x.sink.take(); ok && it.kind == protocol.ServerInputAck {
		t.Errorf("the old socket heard of %s", it)
	}

	// Both may type, and what is refused is told to who typed it.
	y.numbered(3, 1, "old")
	y.drops(3, protocol.RefusedStaleTerm)
	y.numbered(4, 2, "d")
	hears[protocol.Input](a)
	z := w.joinAs(alice, page())
	z.greeted()
	y.leave()
	z.v.Say(protocol.ClientMessage{Type: protocol.ClientRequestControl})
	z.until(protocol.ServerControlState) // so the hub knows that the other left
	a.say(protocol.InputRefused{Client: y.v.keys.Client, Seq: 4, Reason: protocol.RefusedBusy})
	z.drops(4, protocol.RefusedBusy)
}

// Unconfirmed numbered input goes again on the next link, under its own number,
// or is refused by it.
func TestNumberedInputAcrossLinks(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, page())
	x.greeted()
	a := w.attached()
	x.numbered(11, 2, "a")
	x.numbered(12, 2, "b")
	hears[protocol.Input](a)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	x.numbered(13, 2, "lost")
	x.until(protocol.ServerInputRefused)
	a = w.attached()
	if in := hears[protocol.Input](a); in.Seq != 11 || string(in.Bytes) != "a" {
		t.Errorf("%+v", in)
	}
	if in := hears[protocol.Input](a); in.Seq != 12 {
		t.Errorf("%+v", in)
	}
	w.opens(protocol.TerminalOpened{Epoch: testEpoch, Lease: held(9, 5)}, nil)
	a.stream.Close()
	x.until(protocol.ServerWaiting)
	x.until(protocol.ServerControlState)
	x.drops(11, protocol.RefusedStaleTerm)
	x.drops(12, protocol.RefusedStaleTerm)
}

// What is refused while the sandbox is away isn't overtaken by what comes when
// it is back: the agent would take the former for a repetition, and nobody
// would ever know that it was not written.
func TestNothingOvertakesWhatWaits(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, page())
	x.greeted()
	a := w.attached()
	w.tunnels.Connect(nil)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	x.numbered(1, 2, "a")
	x.drops(1, protocol.RefusedWaiting)
	w.connect()
	b := w.attached()
	x.gets(protocol.ServerControlState)
	x.numbered(2, 2, "b") // sent before its client knew
	x.drops(2, protocol.RefusedWaiting)
	x.numbered(1, 2, "a")
	x.numbered(2, 2, "b")
	for _, want := range []uint64{1, 2} {
		if in := hears[protocol.Input](b); in.Seq != want {
			t.Errorf("input %d was passed on, want %d", in.Seq, want)
		}
	}
}
