package hub

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// says checks the next output_held of a socket.
func (x *watcher) heldIs(want bool) {
	x.t.Helper()
	var m protocol.OutputHeld
	x.gets(protocol.ServerOutputHeld).decode(x.t, &m)
	if m.Held != want {
		x.t.Fatalf("held %v, want %v", m.Held, want)
	}
}

// That output waits is told to the controller's sockets alone, to one that comes
// later as well, and no longer once somebody else has control.
func TestOutputHeld(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.join(alice, at(0)) // has control
	y := w.join(bob, at(0))
	x.greeted()
	y.greeted()
	a := w.attached()
	a.say(protocol.Held{Held: true}, protocol.Held{Held: true})
	x.heldIs(true)
	late := w.join(alice, at(0))
	late.greeted()
	late.heldIs(true)
	a.say(protocol.Held{Held: false})
	x.heldIs(false)
	late.heldIs(false)
	a.say(protocol.Held{Held: true})
	x.heldIs(true)
	late.heldIs(true)

	given := protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_bob", State: protocol.LeaseHeld}
	a.say(protocol.Leased{Lease: given})
	var m protocol.OutputHeld
	if x.until(protocol.ServerOutputHeld).decode(t, &m); m.Held {
		t.Error("it is still held for who had control")
	}
	z := w.join(bob, at(0))
	z.greeted()
	a.say(protocol.Held{Held: true})
	z.heldIs(true)
	a.data(0, "out")
	for _, who := range []*watcher{y, x} {
		told := 0
		for {
			it := who.next()
			if it.kind == protocol.ServerOutputHeld {
				told++
			}
			if it.kind == output {
				break
			}
		}
		if want := map[*watcher]int{y: 1, x: 0}[who]; told != want {
			t.Errorf("%s was told %d times", who.grant.Subject, told)
		}
	}

	// A stream that is lost takes it along.
	w.opens(protocol.TerminalOpened{Epoch: testEpoch, Offset: 3, Head: 3, Lease: given}, nil)
	a.stream.Close()
	z.until(protocol.ServerOutputHeld).decode(t, &m)
	if m.Held {
		t.Error("held by a stream that is lost")
	}
	a = w.attached()
	a.say(protocol.Held{Held: true})
	if z.until(protocol.ServerOutputHeld).decode(t, &m); !m.Held {
		t.Error("not held by the next one")
	}
}
