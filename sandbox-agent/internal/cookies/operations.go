package cookies

import (
	"context"
	"crypto/ecdh"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// callbackPath ends the reply address of commands, behind the public origin.
const callbackPath = "/control/callback"

// A DeviceSeal opens what is sealed to a sandbox's device key.
type DeviceSeal struct {
	Key     *ecdh.PrivateKey
	Sandbox protocol.SandboxID
}

// Open implements [Seal].
func (s DeviceSeal) Open(box []byte) (op.SyncSecrets, error) {
	return envseal.Open[op.SyncSecrets](s.Key, envseal.Sync, s.Sandbox, box)
}

// Operations implements [feature.Operator].
func (s *Sink) Operations() feature.Operations {
	return feature.Operations{
		op.KindSyncPair: func(c *jws.Command, body op.Body) (feature.Run, error) {
			return s.preparePair(c, body.(*op.SyncPairSealed))
		},
		op.KindSyncAccept: feature.Do(func(ctx context.Context, c *jws.Command, body *op.SyncAccept) (protocol.OpResult, error) {
			return feature.Done(c), s.accept(ctx, c.Target.SessionID, body)
		}),
		op.KindSyncUnpair: feature.Do(func(ctx context.Context, c *jws.Command, body *op.SyncUnpair) (protocol.OpResult, error) {
			return feature.Done(c), s.unpair(ctx, c.Target.SessionID, body.Pairing)
		}),
		op.KindSyncPolicy: feature.Do(func(ctx context.Context, c *jws.Command, body *op.SyncPolicy) (protocol.OpResult, error) {
			return feature.Done(c), s.setPolicy(ctx, c.Target.SessionID, body)
		}),
	}
}

// preparePair opens the secrets at once: a box that isn't the step's is refused before
// anything is stored. No error quotes any of them.
func (s *Sink) preparePair(c *jws.Command, asked *op.SyncPairSealed) (feature.Run, error) {
	if err := s.isolated(); err != nil {
		return nil, err
	}
	var secrets op.SyncSecrets
	if asked.Step != op.SyncBegin {
		var err error
		if secrets, err = s.o.Seal.Open(asked.Sealed); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "the secrets can't be opened: they must be sealed to this sandbox's key")
		}
	}
	if err := secrets.Check(asked.Step); err != nil {
		return nil, err
	}
	return func(context.Context) (protocol.OpResult, error) {
		result := feature.Done(c)
		var err error
		result.SyncResult, err = s.pair(c, asked, secrets)
		return result, err
	}, nil
}

func (s *Sink) pair(c *jws.Command, asked *op.SyncPairSealed, secrets op.SyncSecrets) (*protocol.SyncResult, error) {
	session := c.Target.SessionID
	switch asked.Step {
	case op.SyncBegin:
		return s.begin(session, c.UserID, asked.Name)
	case op.SyncFinish:
		return s.finish(session, c.UserID, originOf(c), asked, secrets.Code)
	}
	return s.share(session, c.UserID, originOf(c), asked.Name, secrets.SharedSecret)
}

// originOf returns the public origin by which a command came, "" if it says none.
func originOf(c *jws.Command) string {
	if c.Reply == nil {
		return ""
	}
	u, err := url.Parse(c.Reply.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), callbackPath)
}

// find returns a pairing of a session.
func (s *Sink) find(session protocol.SessionID, id protocol.PairingID) (*pairing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.sessions[session]; in != nil && in.pairings[id] != nil {
		return in.pairings[id], nil
	}
	return nil, protocol.Errorf(protocol.KindNotFound, "the session has no such pairing")
}

// accept sets the versions of envelopes that a pairing takes.
func (s *Sink) accept(ctx context.Context, session protocol.SessionID, asked *op.SyncAccept) error {
	p, err := s.find(session, asked.Pairing)
	if err != nil {
		return err
	}
	if err := p.session.turn.take(ctx); err != nil {
		return err
	}
	defer p.session.turn.give()
	if _, err := s.stands(p); err != nil {
		return err
	}
	if err := p.save(asked.Versions); err != nil {
		return fault("the versions can't be stored", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.versions = slices.Clone(asked.Versions)
	return nil
}

// unpair ends a pairing's address at once, and takes its cookies out of Chromium when
// it is its turn. One that waits to be finished makes room for another.
func (s *Sink) unpair(ctx context.Context, session protocol.SessionID, id protocol.PairingID) error {
	if s.giveUp(session, id) {
		return nil
	}
	p, err := s.find(session, id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.close(p)
	s.mu.Unlock()
	if err := p.forget(); err != nil { // the pairing is still listed, so that it can be ended again
		return fault("the pairing takes nothing now, but its end can't be stored", err)
	}
	if err := p.session.turn.take(ctx); err != nil {
		return err
	}
	defer p.session.turn.give()
	s.mu.Lock()
	if in := s.sessions[session]; in != nil {
		delete(in.pairings, id)
	}
	s.mu.Unlock()
	var gone []seal.CookieID
	err = p.kept.each(func(k kept) error {
		gone = append(gone, k.Cookie.ID())
		return nil
	})
	ctx, cancel := context.WithTimeout(p.session.over, setTimeout)
	defer cancel()
	policy, policyErr := readPolicy(s.dirOf(session))
	if policyErr != nil {
		policy, _ = seal.NewPolicy(true, nil) // nothing passes, nor is put back
	}
	if err = errors.Join(err, s.retract(ctx, session, policy, gone), os.RemoveAll(p.dir)); err != nil {
		return fault("the pairing has ended, but not all its cookies could be taken out of the browser, which has them until it ends", err)
	}
	return nil
}

// setPolicy replaces a session's policy. What doesn't pass any more is taken out: its
// owner has the last word on what is in the browser.
func (s *Sink) setPolicy(ctx context.Context, session protocol.SessionID, asked *op.SyncPolicy) error {
	file := policyFile(asked)
	policy, err := file.Compile()
	if err != nil {
		return err
	}
	s.mu.Lock()
	in := s.session(session)
	s.mu.Unlock()
	if err := in.turn.take(ctx); err != nil {
		return err
	}
	defer in.turn.give()
	if err := in.over.Err(); err != nil {
		return protocol.Fault(protocol.KindEnded, err)
	}
	if err := os.MkdirAll(s.dirOf(session), 0o700); err != nil {
		return fault("the policy can't be stored", err)
	}
	if err := file.Write(policyPath(s.dirOf(session))); err != nil {
		return fault("the policy can't be stored", err)
	}
	if err := s.prune(in, policy); err != nil {
		return fault("the policy counts, but not all cookies that it keeps back could be taken out of the browser", err)
	}
	return nil
}

// prune takes out what a policy keeps back. The session's turn is held.
func (s *Sink) prune(in *session, policy *seal.Policy) error {
	var all []seal.CookieID
	var errs []error
	for _, p := range s.pairingsOf(in.id) {
		sum, gone, err := p.kept.rewrite(batch{}, 0, func(c seal.Cookie) bool { return policy.Passes(c.HostKey) })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.mu.Lock()
		p.sum = sum
		s.mu.Unlock()
		all = append(all, gone...)
	}
	ctx, cancel := context.WithTimeout(in.over, setTimeout)
	defer cancel()
	return errors.Join(append(errs, s.retract(ctx, in.id, policy, all))...)
}
