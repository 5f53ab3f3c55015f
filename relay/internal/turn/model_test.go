package turn_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// An op is one thing that happens: rapid draws them, the fuzzer's bytes become
// them.
type op struct{ kind, a, b uint8 }

const opKinds = 17

// do lets o happen. a and b pick who.
func (w *world) do(o op) {
	user := func(n uint8) protocol.UserID { return []protocol.UserID{alice, bob, carol, "usr_dave"}[n%4] }
	socket := turn.SocketID(0) // one that is there, or never was
	if w.nextID > 0 {
		socket = turn.SocketID(o.a)%w.nextID + 1
	}
	_, there := w.sockets[socket]
	switch o.kind % opKinds {
	case 0, 1:
		if len(w.sockets) < 12 {
			w.joinAs(user(o.a), o.b%4 != 0)
		}
	case 2:
		w.leave(socket)
	case 3:
		if there {
			w.renew(socket, protocol.GrantID("gr_renewed_"+string('a'+rune(o.b%8))), o.b%4 != 0)
		}
	case 4, 5:
		w.step(turn.Requested{Socket: socket})
	case 6:
		w.step(turn.Taken{Socket: socket})
	case 7:
		w.step(turn.Cancelled{Socket: socket})
	case 8:
		w.step(turn.Granted{Socket: socket, To: user(o.b)})
	case 9:
		w.step(turn.Revoked{Socket: socket})
	case 10:
		w.obey()
	case 11:
		w.hear()
	case 12:
		w.settle()
	case 13:
		w.wait(time.Duration(o.a%4) * 3333 * time.Millisecond)
	case 14:
		w.detach()
		if o.a%4 == 0 {
			w.newAgent()
		}
	case 15:
		w.reattach()
	case 16:
		switch o.b % 4 {
		case 0:
			w.elsewhere(protocol.LeaseNext{})
		case 1:
			w.elsewhere(protocol.LeaseNext{Holder: user(o.a), GrantID: "gr_elsewhere"})
		default:
			w.refusing = o.b%4 == 2
		}
	}
}

// end has everybody go home and checks that the terminal becomes free.
func (w *world) end() {
	w.t.Helper()
	w.refusing = false
	w.reattach()
	w.checkHome()
	for id := range w.sockets {
		w.leave(id)
	}
	w.settle()
	if holder := w.register.Lease(w.now).Holder; w.present[holder] > 0 {
		w.t.Fatalf("all are gone, the agent believes in %q", holder)
	}
	w.wait(protocol.ControlGrace)
	w.settle()
	if s := w.s.StateFor(0); len(s.Requests) > 0 || s.Controller != "" && w.register.Lease(w.now).State != protocol.LeaseHeld {
		w.t.Fatalf("%+v", s)
	}
}

// checkHome checks the settled state, and that the agent knows the holder's
// sockets here.
func (w *world) checkHome() {
	w.t.Helper()
	w.checkSettled()
	holder := w.register.Lease(w.now).Holder
	if here := w.controlling(holder); (here > 0) != (w.present[holder] > 0) {
		w.t.Fatalf("%q has %d sockets, the agent knows of %d", holder, here, w.present[holder])
	}
}

// TestAnyOrder lets everything happen in every order.
func TestAnyOrder(t *testing.T) {
	byteValue := rapid.Uint8Range(0, 31)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"op": func(t *rapid.T) {
				w.do(op{rapid.Uint8Range(0, opKinds-1).Draw(t, "kind"), byteValue.Draw(t, "a"), byteValue.Draw(t, "b")})
			},
			"settle": func(*rapid.T) { w.checkSettled() },
		})
		w.end()
	})
}

func FuzzStep(f *testing.F) {
	f.Add([]byte{0, 0, 1, 12, 0, 0, 0, 1, 1, 4, 1, 0, 8, 0, 1, 12, 0, 0, 9, 1, 0, 12, 0, 0})
	f.Add([]byte{0, 0, 1, 14, 0, 0, 15, 0, 0, 0, 1, 1, 2, 0, 0, 13, 3, 0, 12, 0, 0, 6, 1, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWorld(t)
		for ; len(ops) >= 3 && w.nextID < 200; ops = ops[3:] {
			w.do(op{ops[0], ops[1], ops[2]})
		}
		w.end()
	})
}
