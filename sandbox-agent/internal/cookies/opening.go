package cookies

import (
	"cmp"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// openFor is how long a pairing waits for the other side's key.
	openFor = 10 * time.Minute
	// maxOpen bounds those of a session that wait.
	maxOpen = 5
)

// secretWarning is what people are told who pair by a secret.
const secretWarning = "Whoever knows this secret and the address can push, and read what is pushed. It has to be random. A pairing with a code needs no secret that somebody has to carry."

// begin makes a key for a pairing.
func (s *Sink) begin(session protocol.SessionID, user protocol.UserID, name string) (*protocol.SyncResult, error) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	o := &opening{user: user, name: name, private: private, expires: now.Add(openFor)}
	id := protocol.NewPairingID()
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.session(session)
	if err := in.room(); err != nil {
		return nil, err
	}
	for id, old := range in.openings {
		if !now.Before(old.expires) {
			delete(in.openings, id)
		}
	}
	if len(in.openings) >= maxOpen {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d pairings of this session are not finished: finish one, or wait %s", maxOpen, openFor)
	}
	in.openings[id] = o
	return &protocol.SyncResult{
		Pairing: id, SinkPublicKey: private.PublicKey().Bytes(), SinkHostname: s.hostname(session), ExpiresAt: o.expires.UnixMilli(),
	}, nil
}

// hostname is the name by which a source files its key: each session's is another.
func (s *Sink) hostname(session protocol.SessionID) string {
	return string(session) + "." + string(s.o.Sandbox)
}

// claim takes a pairing that waits: whatever comes of it, it can't be finished again.
func (s *Sink) claim(session protocol.SessionID, user protocol.UserID, id protocol.PairingID) (*opening, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.sessions[session]
	if in == nil || in.openings[id] == nil {
		return nil, protocol.Errorf(protocol.KindNotFound, "no such pairing waits to be finished: begin another one")
	}
	o := in.openings[id]
	if o.user != user {
		return nil, protocol.Errorf(protocol.KindForbidden, "somebody else has begun this pairing")
	}
	delete(in.openings, id)
	if !time.Now().Before(o.expires) {
		return nil, protocol.Errorf(protocol.KindExpired, "the pairing was not finished within %s: begin another one", openFor)
	}
	return o, nil
}

// giveUp ends a pairing that waits, if it does.
func (s *Sink) giveUp(session protocol.SessionID, id protocol.PairingID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.sessions[session]
	if in == nil || in.openings[id] == nil {
		return false
	}
	delete(in.openings, id)
	return true
}

// finish makes a pairing of one that waits, by the other side's key and code.
func (s *Sink) finish(session protocol.SessionID, user protocol.UserID, origin string, asked *op.SyncPairSealed, code string) (*protocol.SyncResult, error) {
	canonical, err := seal.ParseCode(code)
	if err != nil {
		return nil, err
	}
	o, err := s.claim(session, user, asked.Pairing)
	if err != nil {
		return nil, err
	}
	paired, err := seal.Pair(o.private, asked.SourcePublicKey, canonical)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(paired.Fingerprint()), []byte(asked.Fingerprint)) != 1 {
		return nil, protocol.Errorf(protocol.KindUnauthenticated, "the fingerprint differs: the code is another one, or somebody is in between; the pairing is void")
	}
	return s.add(session, origin, storedPairing{
		ID: asked.Pairing, User: user, Name: o.name, Hostname: asked.SourceHostname, Mode: modePaired,
		Fingerprint: paired.Fingerprint(), Secret: paired[:],
	})
}

// share makes a pairing of a secret that the other side has, too.
func (s *Sink) share(session protocol.SessionID, user protocol.UserID, origin, name, secret string) (*protocol.SyncResult, error) {
	sum := sha256.Sum256([]byte(secret))
	result, err := s.add(session, origin, storedPairing{
		ID: protocol.NewPairingID(), User: user, Name: name, Mode: modeSecret,
		Fingerprint: hex.EncodeToString(sum[:4]), Secret: []byte(secret),
	})
	if err != nil {
		return nil, err
	}
	result.Warning = secretWarning
	return result, nil
}

// add has envelopes taken for a new pairing.
func (s *Sink) add(session protocol.SessionID, origin string, stored storedPairing) (*protocol.SyncResult, error) {
	stored.Address = newAddress()
	stored.URL = origin + op.SyncPath(s.o.Sandbox, stored.Address)
	stored.PairedAt = time.Now().UnixMilli()
	stored.Versions = []int{seal.Version}
	s.mu.Lock()
	in := s.session(session)
	s.mu.Unlock()
	p, err := openPairing(in.ground, filepath.Join(s.dirOf(session), string(stored.ID)), stored, summary{}, nil)
	if err != nil {
		return nil, err
	}
	if err := in.turn.take(in.over); err != nil {
		return nil, err
	}
	defer in.turn.give()
	s.mu.Lock()
	err = cmp.Or(in.over.Err(), in.room())
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := p.create(); err != nil {
		return nil, fault("the pairing can't be stored", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := in.over.Err(); err != nil { // and its folder goes with the session's
		return nil, protocol.Fault(protocol.KindEnded, err)
	}
	s.admit(in, p)
	return &protocol.SyncResult{Pairing: p.ID, URL: p.URL, Fingerprint: p.Fingerprint}, nil
}
