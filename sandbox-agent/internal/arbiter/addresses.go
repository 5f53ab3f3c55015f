package arbiter

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// maxAddresses bounds the addresses that a terminal knows of what its program has
// printed. The oldest go first.
const maxAddresses = 32

// addresses are those, in the order in which they were found. The arbiter's mu
// guards them.
type addresses []protocol.Address

// add adds one, unless there is a secret of set in it, which was added since it was
// found.
func (all *addresses) add(m protocol.Address, set *redact.Set) bool {
	if reveals(set, m) {
		return false
	}
	if len(*all) == maxAddresses {
		*all = slices.Delete(*all, 0, 1)
	}
	*all = append(*all, m)
	return true
}

// mask drops those in which a secret of set is: they lead nowhere without it.
func (all *addresses) mask(set *redact.Set) {
	*all = slices.DeleteFunc(*all, func(m protocol.Address) bool { return reveals(set, m) })
}

// reveals reports whether there is a secret of set in an address.
func reveals(set *redact.Set, m protocol.Address) bool {
	return !set.Empty() && string(set.Mask([]byte(m.URL))) != m.URL
}
