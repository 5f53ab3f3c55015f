package cookies

import (
	"context"
	"crypto/ecdh"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A session is one that has pairings, or will have.
type session struct {
	*ground

	// Guarded by the Sink's mu.
	pairings map[protocol.PairingID]*pairing
	openings map[protocol.PairingID]*opening
}

func newSession(id protocol.SessionID) *session {
	return &session{
		ground:   &ground{id: id, turn: make(turn, 1), over: life{context.Background(), make(chan struct{})}},
		pairings: map[protocol.PairingID]*pairing{}, openings: map[protocol.PairingID]*opening{},
	}
}

// room fails if a session can't have another pairing. It is called with the Sink's mu
// held.
func (in *session) room() error {
	if len(in.pairings) >= maxPairings {
		return protocol.Errorf(protocol.KindTooMany, "the session has %d pairings: end one of them first", maxPairings)
	}
	return nil
}

// An opening is a pairing that waits for the other side's key, in memory alone.
type opening struct {
	user    protocol.UserID
	name    string
	private *ecdh.PrivateKey
	expires time.Time
}
