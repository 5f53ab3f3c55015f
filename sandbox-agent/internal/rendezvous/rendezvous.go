// Package rendezvous gives each sandbox an order of relays that is its own, by
// rendezvous hashing (highest random weight). Nobody has to agree on anything:
// with n relays each is the first of about 1/n of all sandboxes, and the second
// of about as many of each other's. A relay that comes becomes the first of about
// 1/(n+1) of them, and one that leaves spreads its own over the others; nobody
// else moves. It is pure.
package rendezvous

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// Order returns relays, each once, in the order in which sandbox tries them: the
// heaviest first. All weigh the same on average.
//
// The weight of a relay is the first 8 bytes, read as a big-endian number, of
// SHA-256 over the bytes of the sandbox's id, one byte 0x00, and the bytes of the
// relay's address. Id and address are taken as they are written: the same relay by
// another name, or in capitals, is another relay. Of equal weights the address that
// sorts first, byte by byte, comes first. Versions that differ in any of this would
// move almost every sandbox, so it stays as it is.
func Order(sandbox protocol.SandboxID, relays []string) []string {
	type weighed struct {
		weight uint64
		relay  string
	}
	all := make([]weighed, len(relays))
	for i, relay := range relays {
		all[i] = weighed{weight(sandbox, relay), relay}
	}
	slices.SortFunc(all, func(a, b weighed) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.relay, b.relay))
	})
	order := make([]string, len(all))
	for i, w := range all {
		order[i] = w.relay
	}
	return slices.Compact(order)
}

func weight(sandbox protocol.SandboxID, relay string) uint64 {
	text := make([]byte, 0, len(sandbox)+1+len(relay))
	text = append(text, sandbox...)
	text = append(text, 0) // neither has one, so no two pairs have the same bytes
	text = append(text, relay...)
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:8])
}
