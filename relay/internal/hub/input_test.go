package hub

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// synced waits until the hub has read all that the sandbox said: output comes
// in order with everything else.
func synced(a *attach, x *watcher, offset uint64) uint64 {
	a.t.Helper()
	end := a.data(offset, "#")
	x.reads("#")
	return end
}

func TestInputIsStampedAndBounded(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	paste := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	typed := make(chan error, 1)
	go func() { typed <- x.v.Type(t.Context(), []byte(paste)) }() // received below

	var got bytes.Buffer
	unacked := 0
	for next := uint64(1); got.Len() < len(paste); next++ {
		in := hears[protocol.Input](a)
		if in.Term != 2 || in.Client != x.v.keys.Client || in.Seq != next {
			t.Fatalf("input %d of %q in term %d", in.Seq, in.Client, in.Term)
		}
		got.Write(in.Bytes)
		if unacked += len(in.Bytes); unacked > protocol.MaxInputUnacked {
			t.Fatalf("%d bytes are under way", unacked)
		}
		if unacked+protocol.MaxInputBytes > protocol.MaxInputUnacked-4*input.Overhead || got.Len() == len(paste) {
			a.say(protocol.InputAck{Client: in.Client, Seq: in.Seq})
			unacked = 0
		}
	}
	if err := <-typed; err != nil || got.String() != paste {
		t.Errorf("%d bytes arrived, %v", got.Len(), err)
	}
	synced(a, x, 0)
	if !x.v.keys.Credit().TryAcquire(protocol.MaxInputUnacked) || !x.v.hub.typing.Room().TryAcquire(protocol.MaxInputQueued) {
		t.Error("acknowledged input still takes room")
	}
}

func TestTypingWaitsForRoom(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	x.types(strings.Repeat("x", protocol.MaxInputUnacked-8*input.Overhead))
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 2)
	go func() { waits <- x.v.Type(ctx, make([]byte, 1<<10)) }() // received below
	cancel()
	if err := <-waits; err == nil {
		t.Error("typed without room")
	}
	go func() { waits <- x.v.Type(context.Background(), []byte("later")) }() // received below
	for in := hears[protocol.Input](a); string(in.Bytes) != "later"; in = hears[protocol.Input](a) {
		a.say(protocol.InputAck{Client: in.Client, Seq: in.Seq})
	}
	if err := <-waits; err != nil {
		t.Error(err)
	}
}

func TestRefusedInputIsToldOnce(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(carol, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	y.sink.block(true)
	y.v.Complain(protocol.Errorf(protocol.KindInvalid, "x")) // what the writer is stuck with, perhaps
	for range 50 {
		y.types("not mine")
	}
	y.sink.block(false)
	y.v.Complain(protocol.Errorf(protocol.KindInvalid, "y"))
	refusals := 0
	for errors := 0; errors < 2; {
		switch it := y.next(); it.kind {
		case protocol.ServerInputRefused:
			refusals++
			var m protocol.InputDropped
			if it.decode(t, &m); m.Reason != protocol.RefusedNotController {
				t.Errorf("%+v", m)
			}
		case protocol.ServerError:
			errors++
		}
	}
	if refusals < 1 || refusals > 3 {
		t.Errorf("told %d times", refusals)
	}
	counted := testutil.ToFloat64(w.set.metrics.Typing.Refused.WithLabelValues(string(protocol.RefusedNotController)))
	if counted != 50 {
		t.Errorf("%v refusals are counted", counted)
	}

	x.types("mine")
	in := hears[protocol.Input](a)
	a.say(protocol.InputRefused{Client: "another", Seq: in.Seq, Reason: protocol.RefusedBusy},
		protocol.InputRefused{Client: in.Client, Seq: in.Seq + 1, Reason: protocol.RefusedBusy},
		protocol.InputRefused{Client: in.Client, Seq: in.Seq, Reason: protocol.RefusedBusy},
		protocol.InputRefused{Client: in.Client, Seq: in.Seq, Reason: protocol.RefusedBusy})
	var m protocol.InputDropped
	x.gets(protocol.ServerInputRefused).decode(t, &m)
	if m.Reason != protocol.RefusedBusy {
		t.Errorf("%+v", m)
	}
	synced(a, x, 0) // and nothing else came
	if !x.v.keys.Credit().TryAcquire(protocol.MaxInputUnacked) {
		t.Error("refused input still takes room")
	}
}

func TestUnconfirmedInputIsSentAgain(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	x.types("a")
	x.types("b")
	x.types("c")
	first := hears[protocol.Input](a)
	second := hears[protocol.Input](a)
	a.say(protocol.InputAck{Client: first.Client, Seq: first.Seq})
	synced(a, x, 0)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	x.types("lost") // nobody is there to take it
	x.until(protocol.ServerInputRefused)

	a = w.attached()
	again := hears[protocol.Input](a)
	if again.Seq != second.Seq || again.Client != second.Client || string(again.Bytes) != "b" {
		t.Errorf("%+v, want %+v", again, second)
	}
	if third := hears[protocol.Input](a); third.Seq != second.Seq+1 || string(third.Bytes) != "c" {
		t.Errorf("%+v", third)
	}
}

func TestInputOfAnotherTermIsNotSentAgain(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	x.types("old")
	hears[protocol.Input](a)
	w.opens(protocol.TerminalOpened{Epoch: 7, Lease: held(9, 5)}, nil)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	control(t, x.gets(protocol.ServerControlState), relaytest.User, 5)
	var m protocol.InputDropped
	x.gets(protocol.ServerInputRefused).decode(t, &m)
	if m.Reason != protocol.RefusedStaleTerm {
		t.Errorf("%+v", m)
	}
	x.types("new")
	if in := hears[protocol.Input](w.attached()); string(in.Bytes) != "new" || in.Term != 5 {
		t.Errorf("%+v", in)
	}
	if !x.v.keys.Credit().TryAcquire(protocol.MaxInputUnacked - 3 - input.Overhead) {
		t.Error("refused input still takes room")
	}
}
