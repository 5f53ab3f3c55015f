package agent

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// recordingsDir is where recordings are in the state directory.
const recordingsDir = "recordings"

func (c *Config) openRecordings(log *slog.Logger) (*recording.Store, error) {
	return recording.Open(recording.Options{Dir: filepath.Join(c.StateDir, recordingsDir), Logger: log})
}

// openSpill opens what keeps the older output of terminals, nil where none is
// kept.
func (c *Config) openSpill(log *slog.Logger) (*spill.Store, error) {
	if c.SpillDir == "" {
		return nil, nil
	}
	store, err := spill.Open(spill.Options{
		Dir: c.SpillDir, PerTerminal: int64(c.SpillPerTerminal), Total: int64(c.SpillTotal), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--spill-dir: %w", err)
	}
	return store, nil
}
