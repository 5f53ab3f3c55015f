package relay

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound12MemoryLimit: what terminals show may fill its budget without as
// much garbage beside it; whatever else is in use has room as without a limit.
func TestFound12MemoryLimit(t *testing.T) {
	const mib = 1 << 20
	budget := int64(protocol.RelayRingBytes)
	for _, c := range []struct{ used, shown, least, most int64 }{
		{0, 0, budget, budget + 48*mib},
		{10 * mib, 300 * mib, budget, budget + 48*mib}, // it was counted before the collector saw it
		{budget + 16*mib, budget, budget + 16*mib, budget + 48*mib},
		{1000 * mib, 0, 2000 * mib, 1 << 40},
		{1000*mib + budget, budget, 2000*mib + budget, 1 << 40},
	} {
		if got := memoryLimit(c.used, c.shown); got < c.least || got > c.most {
			t.Errorf("%d MiB used, of which %d: a limit of %d MiB", c.used/mib, c.shown/mib, got/mib)
		}
	}
}
