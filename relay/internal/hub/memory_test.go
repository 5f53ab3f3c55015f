package hub

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// huge says a keyframe of the largest size, in pieces.
func (a *attach) huge(offset uint64, history bool) {
	a.t.Helper()
	piece := make([]byte, protocol.MaxKeyframePiece)
	var pieces []protocol.Message
	for left := protocol.MaxKeyframeBytes; left > 0; {
		n := min(left, len(piece))
		left -= n
		pieces = append(pieces, protocol.Keyframe{Offset: offset, History: history, Left: left, Bytes: piece[:n]})
	}
	a.say(pieces...)
}

// TestFound12UnaskedKeyframes: what nobody has asked for is not kept, not even
// while it comes, and the stream goes on.
func TestFound12UnaskedKeyframes(t *testing.T) {
	w := newWorld(t, older())
	x := w.joinAs(bob, Guest{Since: at(100_000)})
	a := w.attached()
	a.huge(100_000, true)
	a.huge(100_000, false)
	reads(x).to(a.prints(100_000, 100_010)) // so both have come
	if keeps(x.v.hub.feed) {
		t.Error("a keyframe is kept that nobody asked for")
	}
	if n := w.set.memory.Held(); n != 0 {
		t.Errorf("%d bytes are charged", n)
	}
	if n := testutil.ToFloat64(w.set.metrics.Feeds.KeyframesDropped.WithLabelValues(feed.DroppedUnasked)); n != 2 {
		t.Errorf("%v are counted", n)
	}
}

// TestFound12KeyframesAreCharged: one that was asked for counts as long as
// anybody has it, however slow, and rings make room for it.
func TestFound12KeyframesAreCharged(t *testing.T) {
	w := newWorld(t, older())
	x := w.join(bob, nil)
	x.sink.block(true)
	a := w.attached()
	hears[protocol.WantKeyframe](a)
	a.huge(100_000, true)
	a.huge(100_000, true) // once more, for nothing
	y := w.joinAs(carol, Guest{Since: at(100_000)})
	head := a.prints(100_000, 100_010)
	r := reads(y)
	r.to(head)
	taken := w.set.memory.Held()
	if taken < protocol.MaxKeyframeBytes || taken > protocol.MaxKeyframeBytes+64<<10 {
		t.Errorf("%d bytes are charged", taken)
	}
	if left := w.set.memory.Left(); left > protocol.RelayRingBytes-protocol.MaxKeyframeBytes {
		t.Errorf("rings may take %d bytes", left)
	}
	r.to(a.prints(head, head+100_000))
	if x.v.hub.feed.DropStale(); keeps(x.v.hub.feed) { // nobody new gets it
		t.Error("it is kept, though much was printed since")
	}
	if n := w.set.memory.Held(); n != taken {
		t.Errorf("%d bytes are charged while it is being written", n)
	}
	x.sink.block(false)
	for it := x.next(); it.kind != output || len(it.bytes) != protocol.MaxKeyframeBytes; it = x.next() {
	}
	x.until(output)
	if n := w.set.memory.Held(); n != 0 {
		t.Errorf("%d bytes are charged for nobody", n)
	}
}

// TestFound12HubsAreBounded: a sandbox, and a person, have so many hubs. One
// that nobody looks at gives way.
func TestFound12HubsAreBounded(t *testing.T) {
	for name, vary := range map[string]func(*Key, *jws.Grant, int){
		"of a sandbox": func(k *Key, g *jws.Grant, i int) {
			k.PTY, g.Subject = protocol.PTYID(fmt.Sprint("pty_", i)), protocol.UserID(fmt.Sprint("usr_", i))
		},
		"of a person": func(k *Key, _ *jws.Grant, i int) {
			k.PTY, k.Sandbox = protocol.PTYID(fmt.Sprint("pty_", i)), protocol.SandboxID(fmt.Sprint("sb_", i))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, older())
			w.tunnels.Connect(nil)
			enter := func(i int) (*Handle, error) {
				key, grant := Key{Sandbox: relaytest.Sandbox, Session: relaytest.Session}, &jws.Grant{Subject: "usr_1", ID: "gr_1"}
				vary(&key, grant, i)
				tenancy, err := w.set.acquire(key, grant, "")
				if err != nil {
					return nil, err
				}
				h := &Handle{set: w.set, key: key, t: tenancy, user: grant.Subject}
				t.Cleanup(h.Release)
				return h, nil
			}
			var all []*Handle
			for i := range maxHubs {
				h, err := enter(i)
				if err != nil {
					t.Fatalf("hub %d: %v", i, err)
				}
				all = append(all, h)
			}
			if _, err := enter(maxHubs); err == nil || protocol.KindOf(err) != protocol.KindTooMany {
				t.Errorf("one more: %v", err)
			}
			if _, err := enter(7); err != nil {
				t.Errorf("one that there is: %v", err)
			}
			all[3].Release()
			all[5].Release()
			if _, err := enter(maxHubs); err != nil {
				t.Errorf("with idle ones: %v", err)
			}
			<-all[3].t.hub.life.done // the one that was idle for longest
			select {
			case <-all[5].t.hub.life.done:
				t.Error("more than one gave way")
			default:
			}
		})
	}
}
