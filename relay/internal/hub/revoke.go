package hub

import (
	"errors"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
)

// Under has viewers end with their grants by the clock, and the revocations, of
// grants. It is called before the first Open; without it nothing is revoked.
func (s *Set) Under(grants *lifetime.Grants) { s.grants = grants }

// whyEnded says what is counted, and what a viewer is told, when its grant has
// ended.
func whyEnded(err error) (why string, kind protocol.Kind, cause string) {
	e := protocol.AsError(err)
	if errors.Is(err, lifetime.ErrRevoked) {
		return cutRevoked, e.Kind, e.Error()
	}
	return cutExpired, e.Kind, e.Error()
}
