package hub

import (
	"errors"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
)

// Under sets the grants that end viewers when they expire or are revoked. It
// must be called before the first Open; without it nothing is revoked.
func (s *Set) Under(grants *lifetime.Grants) { s.grants = grants }

// whyEnded returns the metric's label, and what the viewer is told, for the end
// of its grant.
func whyEnded(err error) (why string, kind protocol.Kind, cause string) {
	e := protocol.AsError(err)
	if errors.Is(err, lifetime.ErrRevoked) {
		return cutRevoked, e.Kind, e.Error()
	}
	return cutExpired, e.Kind, e.Error()
}
