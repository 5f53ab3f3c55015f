package transcript

import (
	"log/slog"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// TestSpillGap: what a slow disk has missed is missing, and nothing waits for it.
func TestSpillGap(t *testing.T) {
	const all = 8 << 20
	store, err := spill.Open(spill.Options{Dir: t.TempDir(), PerTerminal: 16 << 20, Total: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := New("pty_1", 80, 24, store, slog.New(slog.DiscardHandler))
	s := &spiller{Follower: log.Follow(log.End())}
	log.spilled = store.Create("pty_1", 1)
	log.Append(make([]byte, all))
	for range 2 {
		item, file, ok := s.take()
		if !ok {
			t.Fatal("nothing to keep")
		}
		if item.Resized != nil {
			file.Resize(item.Offset, item.Resized.Cols, item.Resized.Rows)
		} else {
			file.Append(item.Offset, item.Bytes)
		}
	}
	oldest := uint64(all - protocol.LogWindowBytes)
	if at, ok := log.spilled.Oldest(); !ok || at != oldest || s.gaps != 1 {
		t.Errorf("begins at %d %v after %d gaps", at, ok, s.gaps)
	}
	log.Append(make([]byte, all))
	_, opened, err := log.Read(protocol.ReadParams{Epoch: log.Epoch(), To: 1 << 60})
	if err != nil || opened.From != oldest+all { // the part on disk ends before
		t.Errorf("%+v %v", opened, err)
	}
}
