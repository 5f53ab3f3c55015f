package turn_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

var rounds = flag.Int("turn.rounds", 5_000, "changes of control with keys in flight, in TestKeysInFlight")

// TestKeysInFlight has people type, at two relays, while control is given back,
// handed over and back again, or taken by a coding agent. Nothing is written for
// who hasn't control at that moment, or under a term that is over.
func TestKeysInFlight(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	written := 0
	for done := 0; done < *rounds; {
		here := scene(t, alice, bob)
		there := here.relay()
		there.join(bob)
		there.join(alice)
		here.settle()
		here.quick, there.quick = true, true
		for range 100 {
			if done++; done > *rounds {
				break
			}
			changeInFlight([2]*world{here, there}, random)
		}
		if written += here.written; len(here.relays) != 2 {
			t.Fatal("a relay is lost")
		}
	}
	if written == 0 || written >= 8**rounds {
		t.Errorf("%d keys were written in %d rounds", written, *rounds)
	}
}

// changeInFlight is one change of control amid eight keys.
func changeInFlight(relays [2]*world, random *rand.Rand) {
	b := relays[0].sandbox
	change := random.IntN(8)
	for i := range 8 {
		w := relays[random.IntN(2)]
		if i == change {
			letChange(w, random)
		}
		for id := range turn.SocketID(2) { // whoever may
			w.types(id + 1)
		}
		for range random.IntN(3) {
			if w := relays[random.IntN(2)]; random.IntN(2) == 0 {
				w.obey()
			} else {
				w.hear()
			}
		}
	}
	relays[0].settle()
	b.stop(random.IntN(2) == 0)
	relays[0].settle()
	if b.register.Lease(b.now).Holder == "" {
		relays[random.IntN(2)].step(turn.Taken{Socket: 1})
		relays[0].settle()
	}
	for _, w := range relays {
		w.forget()
	}
	clear(b.was)
}

// letChange has somebody want control to change.
func letChange(w *world, random *rand.Rand) {
	controller := turn.SocketID(1)
	if w.sockets[controller].User != w.s.Controller() {
		controller = 2
	}
	to := map[protocol.UserID]protocol.UserID{alice: bob, bob: alice}[w.sockets[controller].User]
	switch random.IntN(4) {
	case 0:
		w.step(turn.Revoked{Socket: controller})
	case 1:
		w.step(turn.Granted{Socket: controller, To: to})
		w.step(turn.Granted{Socket: 3 - controller, To: w.sockets[controller].User}) // and back
	case 2:
		w.step(turn.Granted{Socket: controller, To: to})
	case 3:
		w.start("claude", random.IntN(2) == 0)
	}
}
