package integration

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

var _ interface {
	feature.Operator
	toolbox.Set
	feature.Starter
	feature.Ender
	feature.SessionEnder
	feature.Reconnecter
	feature.Runner
} = (*Set)(nil)

// Operations implements [feature.Operator].
func (s *Set) Operations() feature.Operations { return Operations(s.changed) }

// changed asks the control plane again what is attached to a terminal.
func (s *Set) changed(session protocol.SessionID, pty protocol.PTYID) {
	if pty == "" {
		s.RefreshAll()
		return
	}
	go func() { // ends with its request
		ctx, cancel := context.WithTimeout(context.Background(), ListTimeout)
		defer cancel()
		if err := s.Refresh(ctx, session, pty); err != nil {
			s.options.Log.Warn("what is attached to a terminal is not known", "pty", pty, "err", err)
		}
	}()
}

// TerminalStarts implements [feature.Starter].
func (s *Set) TerminalStarts(start *feature.Start) error {
	s.Track(start.Session, start.PTY)
	return nil
}

// TerminalEnded implements [feature.Ender].
func (s *Set) TerminalEnded(t feature.Terminal) { s.Forget(t.Session, t.PTY) }

// SessionEnded implements [feature.SessionEnder].
func (s *Set) SessionEnded(session protocol.SessionID) error {
	s.Forget(session, "")
	return nil
}

// Reconnected implements [feature.Reconnecter]: pushes sent meanwhile are lost.
func (s *Set) Reconnected() { s.RefreshAll() }
