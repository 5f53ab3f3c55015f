package hub

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const elsewhere = "https://other.example"

// isMoved checks that the socket is sent to another relay, and ends.
func (x *watcher) isMoved(origin string) {
	x.t.Helper()
	var m protocol.Moved
	x.until(protocol.ServerMoved).decode(x.t, &m)
	if m.Origin != origin {
		x.t.Errorf("%+v", m)
	}
	if it := x.gets(closed); it.code != 1012 {
		x.t.Errorf("%s", it)
	}
}

// standby is a fleet whose sandbox is at home elsewhere.
type standby struct{ Tunnels }

func (standby) Wait(context.Context, protocol.SandboxID) (*tunnel.Session, error) {
	return nil, &tunnel.StandbyError{Origin: elsewhere}
}

func TestAStandbyOpensNothing(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	w.set.tunnels = standby{w.tunnels}
	grant, token := w.authority.Grant(alice)
	_, err := w.set.Open(t.Context(), testKey, grant, token)
	if moved, ok := errors.AsType[*tunnel.StandbyError](err); !ok || moved.Origin != elsewhere {
		t.Errorf("%v", err)
	}
}

// The sandbox makes another tunnel its primary one while somebody watches.
func TestATunnelThatBecomesAStandby(t *testing.T) {
	w := newWorld(t, older())
	x := w.join(alice, at(100_000))
	x.greeted()
	waiting := w.join(bob, nil) // for a keyframe
	w.attached()
	if err := w.agent.SendRole(protocol.Role{Primary: true, Generation: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.agent.SendRole(protocol.Role{Generation: 2, Origin: elsewhere}); err != nil {
		t.Fatal(err)
	}
	x.isMoved(elsewhere)
	waiting.isMoved(elsewhere)
}

func TestDrain(t *testing.T) {
	for name, origin := range map[string]string{"to another relay": elsewhere, "to nowhere": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
			x := w.join(alice, at(0))
			x.greeted()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			w.set.Drain(ctx, origin)
			if origin != "" {
				x.isMoved(origin)
			} else if it := x.ends(); it.code != 1012 {
				t.Errorf("%s", it)
			}
		})
	}
}

// Rings shrink when there are many, and grow back.
func TestRingsShareTheRelaysMemory(t *testing.T) {
	const whole = protocol.RelayRingBytes / protocol.RingBytes
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	w.serves(0, 0)
	x := w.join(alice, at(0))
	x.greeted()
	a := w.attached()
	reads(x).to(a.prints(0, protocol.RingBytes*3/2))
	f := x.v.hub.feed
	for n, want := range map[int]int{whole: 1 << 20, whole * 4: 256 << 10, whole * 100: 64 << 10} {
		w.set.mu.Lock()
		for i := len(w.set.hubs); i < n; i++ {
			w.set.hubs[Key{PTY: protocol.PTYID(strconv.Itoa(i))}] = &shared{hub: &Hub{}}
		}
		w.set.share()
		for key, t := range w.set.hubs {
			if t.hub != x.v.hub {
				delete(w.set.hubs, key)
			}
		}
		w.set.mu.Unlock()
		gone := f.Head()
		gone.Offset -= uint64(want) + 1
		if window := f.Window(); window != want || !f.Precedes(&gone) {
			t.Errorf("%d hubs: a window of %d bytes that holds %d or not, want %d", n, window, gone.Offset, want)
		}
	}
	w.set.mu.Lock()
	w.set.share()
	w.set.mu.Unlock()
	if window := f.Window(); window != protocol.RingBytes {
		t.Errorf("alone: a window of %d bytes", window)
	}
}
