package usage

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// counts is a store that adds up the grants.
type counts struct{ grants int64 }

func (c *counts) Add(_ context.Context, list []store.Usage) error {
	for _, row := range list {
		c.grants += row.Counts[store.UsageGrants]
	}
	return nil
}

// TestMeter: counts reach the store every few seconds and at the end, and no
// more rows wait for that than there is room for.
func TestMeter(t *testing.T) {
	kept := &counts{}
	m := New(kept, slog.New(slog.DiscardHandler), clock.Clock{})
	for range 3 {
		m.Count("dash_1", "usr_alice", store.UsageGrants)
	}
	m.Flush(t.Context())
	m.Count("dash_1", "usr_alice", store.UsageGrants)
	if got := kept.grants; got != 3 {
		t.Errorf("%d grants after the first write, want 3", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m.Run(ended)
	if got := kept.grants; got != 4 {
		t.Errorf("%d grants at the end, want 4", got)
	}

	for i := range maxRows + 5 {
		m.Count("dash_1", protocol.UserID(fmt.Sprint("usr_", i)), store.UsageGrants)
	}
	if len(m.rows) != maxRows || m.dropped != 5 {
		t.Errorf("%d rows wait, %d counts dropped", len(m.rows), m.dropped)
	}
}
