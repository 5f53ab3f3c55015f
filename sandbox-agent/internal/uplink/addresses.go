package uplink

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/rendezvous"
)

// maxLearned bounds the addresses learned from relays.
const maxLearned = 16

// addresses are where a sandbox's relays are, as far as is known.
type addresses struct {
	// Static after construction.
	sandbox protocol.SandboxID
	pinned  bool // listed is the operator's

	// Owned by whoever holds the value.
	listed  []string // in the order in which they are tried
	learned []string // others that a relay named last, to be tried after those
}

// newAddresses begins with the relays that are listed.
func newAddresses(sandbox protocol.SandboxID, listed []string, pinned bool) addresses {
	a := addresses{sandbox: sandbox, pinned: pinned, listed: slices.Clone(listed)}
	if !pinned {
		a.listed = rendezvous.Order(sandbox, listed)
	}
	return a
}

// adopt replaces the list, and reports whether that changes anything. A list that
// is pinned stays, and an empty one says nothing.
func (a *addresses) adopt(relays []string) bool {
	order := rendezvous.Order(a.sandbox, relays)
	if a.pinned || len(order) == 0 || slices.Equal(order, a.listed) {
		return false
	}
	// What a relay said earlier doesn't bring back one that is gone. What one
	// says later does: it is newer than the list.
	a.learned = slices.DeleteFunc(a.learned, func(addr string) bool { return slices.Contains(a.listed, addr) })
	a.listed = order
	return true
}

// learn notes what a relay names. That replaces what was learned before, since
// relays come and go.
func (a *addresses) learn(alternates []string) {
	valid := slices.DeleteFunc(slices.Clone(alternates), func(addr string) bool { return protocol.CheckAddr(addr) != nil })
	// All agents of a relay hear the same list, and shouldn't go to the same one.
	order := rendezvous.Order(a.sandbox, valid)
	a.learned = order[:min(len(order), maxLearned)]
}

// all returns all that are known, in the order in which they are tried.
func (a *addresses) all() []string {
	all := slices.Clone(a.listed)
	for _, addr := range a.learned {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all
}
