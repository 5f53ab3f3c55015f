package uplink

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/rendezvous"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// newSpread returns the tunnels of a sandbox that has an order of its own.
func newSpread(sandbox protocol.SandboxID, addrs ...string) *Tunnels {
	hello := tunneltest.Hello()
	hello.SandboxID = sandbox
	return New(Options{Relays: addrs, Hello: hello, Generations: counter(), Log: slog.New(slog.DiscardHandler)})
}

// taken returns the address that a keeper dials next, empty if it waits for one.
func taken(t *testing.T, set *Tunnels, last string, again bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	addr, _ := set.take(ctx, last, again)
	return addr
}

// TestEachSandboxHasItsOrder: relays that are listed, and after them those that a
// relay names, are tried in the sandbox's own order; it differs between sandboxes.
func TestEachSandboxHasItsOrder(t *testing.T) {
	listed, named := []string{"one:1", "two:1", "three:1"}, []string{"four:1", "two:1", "five:1", "six:1"}
	firsts, firstNamed := map[string]bool{}, map[string]bool{}
	for _, id := range []protocol.SandboxID{"sb_1", "sb_2", "sb_3", "sb_4", "sb_5", "sb_6", "sb_7", "sb_8", "sb_9"} {
		set := newSpread(id, listed...)
		set.learn(named)
		want := append(rendezvous.Order(id, listed), rendezvous.Order(id, []string{"four:1", "five:1", "six:1"})...)
		if got := set.known(); !slices.Equal(got, want) {
			t.Errorf("%s tries %q, want %q", id, got, want)
		}
		firsts[want[0]], firstNamed[want[3]] = true, true
	}
	if len(firsts) != 3 || len(firstNamed) != 3 {
		t.Errorf("nine sandboxes begin with %v alone, and then with %v", firsts, firstNamed)
	}
}

// TestPinnedRelays: the operator's list keeps its order, whatever the control plane
// says.
func TestPinnedRelays(t *testing.T) {
	for _, list := range [][]string{{"one:1", "two:1", "three:1"}, {"three:1", "two:1", "one:1"}} {
		set := newSet(list...)
		set.Adopt([]string{"four:1"})
		if got := set.known(); !slices.Equal(got, list) {
			t.Errorf("%q are tried as %q", list, got)
		}
	}
}

// TestAdoptedRelays: who waits for a relay hears of a new one; one that is gone is
// dialled no more; an empty list says nothing.
func TestAdoptedRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSpread("sb_1", "one:1")
		if got := taken(t, set, "", false); got != "one:1" {
			t.Fatalf("dials %q", got)
		}
		next := make(chan string, 1)
		go func() { // received below
			addr, _ := set.take(t.Context(), "", false)
			next <- addr
		}()
		synctest.Wait()
		set.Adopt([]string{"one:1", "two:1"})
		if got := <-next; got != "two:1" {
			t.Errorf("the one who waits dials %q", got)
		}

		set.Adopt(nil)
		set.Adopt([]string{"two:1"})
		set.release("one:1")
		if got := taken(t, set, "one:1", true); got != "" {
			t.Errorf("dials %q, which is gone or in use", got)
		}
		set.release("two:1")
		if got := taken(t, set, "one:1", true); got != "two:1" {
			t.Errorf("dials %q instead of one that is gone", got)
		}
	})
}

// TestAdoptedListIsNewer: it overrules what relays named before, but only where it
// says something of them, and what they name later is newer again.
func TestAdoptedListIsNewer(t *testing.T) {
	set := newSpread("sb_1", "one:1", "two:1")
	set.learn([]string{"two:1", "elsewhere:1"})
	set.Adopt([]string{"one:1"})
	if got, want := set.known(), []string{"one:1", "elsewhere:1"}; !slices.Equal(got, want) {
		t.Errorf("%q are known, want %q", got, want)
	}
	set.learn([]string{"two:1"})
	if got, want := set.known(), []string{"one:1", "two:1"}; !slices.Equal(got, want) {
		t.Errorf("%q are known, want %q", got, want)
	}
}

// TestAdoptingMovesNothing: tunnels stay, and their roles, also to a relay that is
// gone. When that one is lost, the standby is promoted and the new relay dialled.
func TestAdoptingMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSpread("sb_1", "one:1", "two:1")
		a, one := connect(t, "rl_1", originOne)
		b, two := connect(t, "rl_2", originTwo)
		taken(t, set, "", false)
		taken(t, set, "", false)
		first := set.arrive(a, "one:1")
		last := one.hears(true, "")
		set.arrive(b, "two:1")
		two.hears(false, originOne)
		set.Adopt([]string{"two:1", "three:1"})
		synctest.Wait()
		if role, _, _ := one.session.Role(); set.Primary() != a || len(set.Sessions()) != 2 || role.Generation != last {
			t.Errorf("%d tunnels, the primary is %v, which heard %+v", len(set.Sessions()), set.Primary(), role)
		}
		if set.replaced(first) {
			t.Error("nobody is waited for where the relay leaves, and others are known")
		}
		set.release("one:1")
		set.depart(first)
		two.hears(true, "")
		if got := taken(t, set, "one:1", true); got != "three:1" {
			t.Errorf("dials %q", got)
		}
	})
}

// TestTheLastOtherRelayIsWaitedFor: a relay that is gone from the list and leaves
// is not given up before the only one that is left has taken over.
func TestTheLastOtherRelayIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSpread("sb_1", "one:1")
		a, _ := connect(t, "rl_1", originOne)
		first := set.arrive(a, "one:1")
		set.Adopt([]string{"two:1"})
		if set.replaced(first) {
			t.Error("nobody is waited for")
		}
	})
}
