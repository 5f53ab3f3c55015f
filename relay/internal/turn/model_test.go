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
type op struct{ relay, kind, a, b uint8 }

const opKinds = 35

// scenes are two relays of one sandbox.
type scenes [2]*world

func newScenes(t failer) scenes {
	first := newWorld(t)
	return scenes{first, first.relay()}
}

// do lets o happen at one of the relays. a and b pick who.
func (s scenes) do(o op) {
	w := s[o.relay%2]
	switch kind := o.kind % opKinds; {
	case kind > 30:
		w.takeAnyhow(kind, o)
	case kind >= 17:
		w.code(kind, o)
	default:
		w.do(o)
	}
}

// takeAnyhow has the owner take control back, somebody type at a free terminal,
// or everybody be idle.
func (w *world) takeAnyhow(kind uint8, o op) {
	socket := turn.SocketID(0)
	if w.nextID > 0 {
		socket = turn.SocketID(o.a)%w.nextID + 1
	}
	switch kind {
	case 31:
		w.step(turn.TakenBack{Socket: socket})
	case 32, 33:
		w.step(turn.Keyed{Socket: socket})
	case 34:
		w.wait(protocol.ControlIdle)
	}
}

// code has somebody type, or the coding agent or another program do something.
func (w *world) code(kind uint8, o op) {
	leaseFirst := o.b%2 == 0
	switch kind {
	case 17, 18:
		w.start([]string{"claude", "codex"}[o.a%2], leaseFirst)
	case 19:
		w.pause(leaseFirst)
	case 20:
		w.resume(leaseFirst)
	case 21:
		w.stop(leaseFirst)
	case 22, 23:
		w.endTurn(leaseFirst)
	case 24, 25:
		w.beginTurn(leaseFirst)
	case 26:
		w.toolTakes()
	case 27:
		w.toolGives()
	case 28, 29, 30:
		for id := range w.sockets {
			w.types(id)
		}
	}
}

func (w *world) do(o op) {
	w.t.Helper()
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
			w.restart()
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
func (s scenes) end() {
	b := s[0].sandbox
	b.t.Helper()
	b.refusing = false
	for _, w := range s {
		w.reattach()
	}
	s.checkSettled()
	b.stop(true)
	b.toolGives()
	for _, w := range s {
		w.checkHome()
		for id := range w.sockets {
			w.leave(id)
		}
	}
	s.checkSettled()
	if holder := b.register.Lease(b.now).Holder; b.present(holder) > 0 {
		b.t.Fatalf("all are gone, the agent believes in %q", holder)
	}
	b.wait(protocol.ControlGrace)
	for _, w := range s {
		w.settle()
		if s := w.s.StateFor(0); len(s.Requests) > 0 || s.Controller != "" && b.register.Lease(b.now).State != protocol.LeaseHeld {
			b.t.Fatalf("%+v", s)
		}
	}
}

func (s scenes) checkSettled() {
	for _, w := range s {
		w.checkSettled()
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

// TestAnyOrder lets everything happen in every order, at two relays. Flags
// -rapid.checks and -rapid.steps make it longer.
func TestAnyOrder(t *testing.T) {
	byteValue := rapid.Uint8Range(0, 31)
	rapid.Check(t, func(t *rapid.T) {
		s := newScenes(t)
		t.Repeat(map[string]func(*rapid.T){
			"op": func(t *rapid.T) {
				s.do(op{
					rapid.Uint8Range(0, 1).Draw(t, "relay"), rapid.Uint8Range(0, opKinds-1).Draw(t, "kind"),
					byteValue.Draw(t, "a"), byteValue.Draw(t, "b"),
				})
			},
			"settle": func(*rapid.T) { s.checkSettled() },
		})
		s.end()
	})
}

func FuzzStep(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 12, 0, 0, 0, 0, 1, 1, 0, 4, 1, 0, 0, 8, 0, 1, 0, 12, 0, 0, 0, 9, 1, 0, 0, 12, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 0, 14, 0, 0, 0, 15, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0, 0, 13, 3, 0, 0, 12, 0, 0, 0, 6, 1, 0})
	f.Add([]byte{0, 0, 0, 1, 1, 0, 1, 1, 0, 12, 0, 0, 0, 17, 0, 0, 1, 4, 0, 0, 0, 19, 0, 1, 0, 12, 0, 0, 0, 28, 0, 0, 0, 21, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 0, 12, 0, 0, 0, 17, 0, 0, 0, 22, 0, 0, 0, 12, 0, 0, 0, 28, 0, 0, 0, 24, 0, 0, 0, 12, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		s := newScenes(t)
		for ; len(ops) >= 4 && s[0].nextID+s[1].nextID < 200; ops = ops[4:] {
			s.do(op{ops[0], ops[1], ops[2], ops[3]})
		}
		s.end()
	})
}
