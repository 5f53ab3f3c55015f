package agent

import (
	"fmt"
	"path/filepath"

	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// Defaults of Config.
const (
	DefaultSpillPerTerminal = 64 << 20
	DefaultSpillTotal       = 1 << 30
)

// recordingsDir is where recordings are in the state directory.
const recordingsDir = "recordings"

// openOutputs opens what keeps terminals' output beside their logs.
func (a *Agent) openOutputs() error {
	var err error
	a.recordings, err = recording.Open(recording.Options{
		Dir: filepath.Join(a.cfg.StateDir, recordingsDir), Logger: a.log,
	})
	if err != nil || a.cfg.SpillDir == "" {
		return err
	}
	a.spill, err = spill.Open(spill.Options{
		Dir: a.cfg.SpillDir, PerTerminal: int64(a.cfg.SpillPerTerminal), Total: int64(a.cfg.SpillTotal), Logger: a.log,
	})
	if err != nil {
		return fmt.Errorf("--spill-dir: %w", err)
	}
	return nil
}

// closeOutputs removes what only this process can use.
func (a *Agent) closeOutputs() {
	if a.spill == nil {
		return
	}
	if err := a.spill.Close(); err != nil {
		a.log.Warn("spilled output can't be removed", "err", err)
	}
}
