package bulk

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/protocol"
)

// What the flood's viewer was told it would miss is counted, and nothing of it
// is lost; what it wasn't told of is.
func TestFloodCountsSkips(t *testing.T) {
	spec := pattern.Spec{Seed: 3, Chunk: 100, Start: time.Now()}
	var all []byte
	for k := range 10 {
		all = spec.Append(all, k)
	}
	for name, row := range map[string]struct {
		announced           bool
		skipped, lost, came int64
	}{
		"announced": {true, 300, 0, 700},
		"not":       {false, 0, 300, 700},
	} {
		rec := measure.NewRecorder()
		b := counting(rec)
		b.checker = pattern.NewChecker(spec, nil)
		at := func(offset uint64) protocol.Position { return protocol.Position{Epoch: 1, Offset: offset} }
		b.Jump(client.Jump{To: at(40), Socket: 1})
		b.Output(all[:400], time.Now())
		if row.announced {
			b.Jump(client.Jump{From: at(440), To: at(740), Mode: protocol.ServerResync, Socket: 1})
		}
		b.Output(all[700:], time.Now())
		b.tell()
		got := rec.Snapshot().Counters
		if got[Skipped] != row.skipped || got["lost_bytes"] != row.lost || got[Output] != row.came || got["duplicate_bytes"]+got["corrupt_streams"] != 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
