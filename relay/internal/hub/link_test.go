package hub

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestWaitingAndResume(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(bob, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	end := a.data(0, "before ")
	x.reads("before ")
	y.sink.block(true) // one is behind when it happens
	end = a.data(end, "the loss")
	x.reads("the loss")

	w.tunnels.Connect(nil)
	w.opensWith(func(o protocol.Open, p protocol.TerminalParams) (protocol.TerminalOpened, error) {
		if p.Since == nil || *p.Since != (protocol.Position{Epoch: 7, Offset: end}) {
			t.Errorf("resumes at %v, want %d", p.Since, end)
		}
		return protocol.TerminalOpened{
			Epoch: 7, Offset: end, Head: end + 6, Cols: 80, Rows: 24, Claimed: true, Lease: held(4, 3),
		}, nil
	})
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	late := w.join(carol, &protocol.Position{Epoch: 7, Offset: 3}) // new: it sees nothing yet
	late.gets(protocol.ServerWaiting)

	w.connect()
	a = w.attached()
	a.data(end, " after")
	control(t, x.gets(protocol.ServerControlState), relaytest.User, 3)
	x.reads(" after")
	control(t, late.gets(protocol.ServerControlState), relaytest.User, 3)
	var m protocol.Attached
	if late.gets(protocol.ServerAttached).decode(t, &m); m.Offset != 3 {
		t.Errorf("%+v", m)
	}
	late.reads("ore the loss after")
	y.sink.block(false)
	var read string
	for len(read) < len("before the loss after") {
		if it := y.next(); it.kind == output {
			read += string(it.bytes)
		}
	}
	if read != "before the loss after" {
		t.Errorf("read %q", read)
	}
}

// The agent doesn't repeat a change of size at the very offset of the resume.
func TestTheSizeAfterTheLoss(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	end := a.data(0, "abc")
	x.reads("abc")
	w.opens(protocol.TerminalOpened{Epoch: 7, Offset: end, Head: end, Cols: 100, Rows: 30, Lease: held(3, 2)}, nil)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	var m protocol.SizeChanged
	x.until(protocol.ServerResized).decode(t, &m)
	if m != (protocol.SizeChanged{Offset: end, Cols: 100, Rows: 30}) {
		t.Errorf("%+v", m)
	}
}

func TestAWishForASizeOutlivesTheLink(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	w.tunnels.Connect(nil)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	x.v.Say(protocol.ClientMessage{Type: protocol.ClientResize, Cols: 100, Rows: 30})
	x.v.Say(protocol.ClientMessage{Type: protocol.ClientRequestControl})
	x.gets(protocol.ServerError) // so the hub has seen both
	w.connect()
	if m := hears[protocol.Resize](w.attached()); m.Cols != 100 {
		t.Errorf("%+v", m)
	}
}

func TestReset(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	a := w.attached()
	a.data(0, "secret")
	x.reads("secret")
	a.say(protocol.Reset{Epoch: 8, Offset: 50, Cols: 90, Rows: 20})
	a.answersKeyframe(50)
	var m protocol.Resync
	x.gets(protocol.ServerResync).decode(t, &m)
	if m != (protocol.Resync{Epoch: 8, Offset: 50, Head: 50, Cols: 90, Rows: 20, KeyframeBytes: len(screen(50, true))}) {
		t.Errorf("%+v", m)
	}
	x.reads(screen(50, true))
	control(t, x.gets(protocol.ServerControlState), relaytest.User, 2)
	a.data(50, "new")
	x.reads("new")
	late := w.join(carol, &protocol.Position{Epoch: 7, Offset: 3})
	if m := late.greeted(); m.Epoch != 8 || m.Offset != 50 || m.Mode != protocol.ModeGap {
		t.Errorf("%+v", m)
	}
	late.reads(screen(50, true) + "new")
}

// The agent was restarted: another epoch, and a gap.
func TestAnotherLogAfterTheLoss(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	a := w.attached()
	a.data(0, "old")
	x.reads("old")
	w.opens(protocol.TerminalOpened{Epoch: 9, Gap: true, Head: 3}, nil)
	a.stream.Close()
	x.gets(protocol.ServerWaiting)
	a = w.attached()
	a.data(0, "new")
	a.answersKeyframe(3)
	var m protocol.Resync
	x.until(protocol.ServerResync).decode(t, &m)
	if m.Epoch != 9 || m.Offset != 3 {
		t.Errorf("%+v", m)
	}
	a.data(3, "er")
	var read string
	states := 0
	for want := screen(3, true) + "er"; len(read) < len(want) || states == 0; {
		switch it := x.next(); it.kind {
		case output:
			read += string(it.bytes)
		case protocol.ServerControlState:
			states++
		default:
			t.Fatalf("%s", it)
		}
	}
	if read != screen(3, true)+"er" {
		t.Errorf("read %.40q", read)
	}
}

func TestAHoleInTheStream(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	a := w.attached()
	a.data(0, "abc")
	x.reads("abc")
	w.opens(protocol.TerminalOpened{Epoch: 7, Offset: 3, Head: 6, Lease: held(3, 2)}, nil)
	a.data(5, "f") // two bytes are missing
	x.gets(protocol.ServerWaiting)
	a = w.attached() // by itself
	if a.params.Since == nil || a.params.Since.Offset != 3 {
		t.Errorf("resumes at %v", a.params.Since)
	}
	a.data(3, "def")
	x.gets(protocol.ServerControlState)
	x.reads("def")
}

func TestTheTerminalIsGone(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	w.opens(protocol.TerminalOpened{}, protocol.Errorf(protocol.KindNotFound, "no such terminal"))
	w.attached().stream.Close()
	x.gets(protocol.ServerWaiting)
	if it := x.ends(); it.code != 4004 {
		t.Errorf("%s", it)
	}
}

// The stream is opened under a grant that still counts.
func TestTheBearer(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	if a.grant != x.token {
		t.Error("opened under another grant")
	}
	y := w.join(func(g *jws.Grant) { bob(g); g.ExpiresAt += 60 }, nil)
	y.greeted()
	y.leave() // its grant was the best one
	if m := hears[protocol.GrantDrop](a); m.GrantID != "gr_bob" {
		t.Errorf("%+v", m)
	}
	a.stream.Close()
	if a = w.attached(); a.grant != x.token {
		t.Error("opened again under a grant whose viewer has left")
	}
}

func TestTheLastGrantStays(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	a := w.attached()
	x.leave()
	y := w.join(alice, nil) // takes its place
	y.greeted()
	for added := false; !added; { // before the first is dropped
		switch m := (<-a.heard).(type) {
		case protocol.GrantAdd:
			added = m.Grant == y.token
		case protocol.GrantDrop:
			t.Fatalf("%+v: the stream is without a grant", m)
		}
	}
	if m := hears[protocol.GrantDrop](a); m.GrantID != "gr_bob" {
		t.Errorf("%+v", m)
	}
}

func TestARefusedBearer(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(func(g *jws.Grant) { bob(g); g.ExpiresAt += 60 }, nil)
	y := w.join(alice, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	w.opensWith(func(o protocol.Open, p protocol.TerminalParams) (protocol.TerminalOpened, error) {
		if o.Grant == x.token {
			return protocol.TerminalOpened{}, protocol.Errorf(protocol.KindForbidden, "revoked")
		}
		return protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24, Lease: held(3, 2)}, nil
	})
	a.stream.Close()
	if it := x.ends(); it.code != 4403 {
		t.Errorf("%s", it)
	}
	a = w.attached()
	a.data(0, "on")
	y.until(protocol.ServerControlState)
	y.reads("on")

	w.opens(protocol.TerminalOpened{}, protocol.Fault(protocol.KindExpired, nil))
	a.stream.Close()
	if it := y.ends(); it.code != 4401 { // nobody is left
		t.Errorf("%s", it)
	}
}

// TestRest: a crowd's deliveries take at most half of the time, unless each carries
// much.
func TestRest(t *testing.T) {
	for _, c := range []struct {
		took  time.Duration
		bytes int
		want  time.Duration
	}{
		{smallRound - 1, 1, 0},
		{smallRound, 1, smallRound},
		{2 * time.Millisecond, fullRound - 1, 2 * time.Millisecond},
		{2 * time.Millisecond, fullRound, 0},
		{time.Second, 1, longestRest},
	} {
		if got := rest(c.took, c.bytes); got != c.want {
			t.Errorf("%v after %v for %d bytes, want %v", got, c.took, c.bytes, c.want)
		}
	}
}
