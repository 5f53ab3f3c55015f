// Package agentstream keeps streams to sandboxes' agents: when to open one again,
// and what waits to be written to one.
package agentstream

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// Tunnels finds the tunnel of a sandbox. Package fleet implements it.
type Tunnels interface {
	// Wait returns the sandbox's tunnel and waits for it until ctx ends.
	Wait(ctx context.Context, id protocol.SandboxID) (*tunnel.Session, error)
}

// Pauses before a stream is opened again.
const FirstPause, LongestPause = 100 * time.Millisecond, 2 * time.Second

// Longer returns the pause after another failure.
func Longer(pause time.Duration) time.Duration { return min(max(2*pause, FirstPause), LongestPause) }

// Open opens a stream as soon as the sandbox is connected, and first waits for
// wait. It retries until it succeeds, ctx ends, or the answer is [Final]; failed
// is told of every other failure.
func Open[S any](ctx context.Context, tunnels Tunnels, sandbox protocol.SandboxID, wait time.Duration,
	open func(context.Context, *tunnel.Session) (S, error), failed func(error)) (S, error) {
	var none S
	for ; ; wait = Longer(wait) {
		if err := pause.For(ctx, wait); err != nil {
			return none, err
		}
		session, err := tunnels.Wait(ctx, sandbox)
		if err != nil {
			return none, err
		}
		s, err := open(ctx, session)
		if err == nil || Final(err) {
			return s, err
		}
		failed(err)
	}
}

// AboutGrant reports whether the agent refused only the grant.
func AboutGrant(err error) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	return ok && (e.Kind == protocol.KindForbidden || e.Kind == protocol.KindUnauthenticated || e.Kind == protocol.KindExpired)
}

// Final reports whether asking again can't change the agent's answer.
func Final(err error) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return false
	}
	switch e.Kind {
	case protocol.KindNotFound, protocol.KindInvalid, protocol.KindEnded, protocol.KindUnsupported:
		return true
	}
	return AboutGrant(err)
}

// Demoted returns where sockets should go instead of session, nil if they may
// stay or no better place is known.
func Demoted(session *tunnel.Session) error {
	if role, said, _ := session.Role(); said && !role.Primary && role.Origin != "" {
		return &tunnel.StandbyError{Origin: role.Origin}
	}
	return nil
}

// UntilDemoted waits until session is Demoted, or ctx ends.
func UntilDemoted(ctx context.Context, session *tunnel.Session) {
	for Demoted(session) == nil {
		_, _, changed := session.Role()
		if Demoted(session) != nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
