// Package fleet knows which sandbox is connected to this relay, by which
// tunnel, and decides between two that claim to be the same.
package fleet

import (
	"context"
	"crypto/ecdsa"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// roleTime is how long an agent has to say its tunnel's role. One that
	// says none has one tunnel only, which is primary.
	roleTime = time.Second
	// patience is how long whoever looks for a sandbox waits before it is sent
	// to another relay: when that one has just died, the agent promotes its
	// tunnel here within about this time.
	patience = 250 * time.Millisecond
)

// Fleet holds the registered tunnel of every sandbox.
type Fleet struct {
	// Static after construction.
	keys    *jws.Keys
	revoked *jws.RevocationSet
	log     *slog.Logger
	traffic *traffic

	// Guarded by mu.
	mu       sync.Mutex
	members  map[protocol.SandboxID]*member
	changed  chan struct{} // closed and replaced when members change
	draining bool          // nobody is let in any more
}

// A member is one registered sandbox.
type member struct {
	session     *tunnel.Session
	hello       protocol.Hello
	certificate *jws.Certificate
	key         *ecdsa.PublicKey
	since       time.Time // of its registration
}

// New returns an empty Fleet that verifies certificates with keys, and ends the
// tunnels of those that revoked comes to name.
func New(keys *jws.Keys, revoked *jws.RevocationSet, log *slog.Logger) *Fleet {
	f := &Fleet{
		keys: keys, revoked: revoked, log: log, traffic: newTraffic(),
		members: map[protocol.SandboxID]*member{}, changed: make(chan struct{}),
	}
	revoked.OnChange(f.endRevoked)
	return f
}

// Admit decides about a registration (DESIGN §3). The certificate must be the
// control plane's and the HELLO signed by the key in it. Of two tunnels with
// the same id and key the higher generation wins, and the loser is told who
// took over; another key never displaces a live tunnel.
func (f *Fleet) Admit(ctx context.Context, reg *tunnel.Registration) error {
	hello := reg.Hello
	cert, err := f.keys.Certificate(ctx, hello.Certificate)
	if err != nil {
		return err
	}
	if cert.Subject != hello.SandboxID {
		return protocol.Errorf(protocol.KindForbidden, "the certificate belongs to another sandbox")
	}
	key, err := cert.PublicKey()
	if err != nil {
		return err
	}
	transcript := protocol.HelloTranscript(reg.Challenge.RelayID, reg.Challenge.Nonce, reg.Exporter)
	if !jws.VerifyDevice(key, transcript, hello.Signature) {
		return protocol.Errorf(protocol.KindUnauthenticated, "the registration is not signed by the certified key")
	}
	if err := reg.AwaitTurn(ctx); err != nil {
		return err
	}
	m := &member{session: reg.Session, hello: hello, certificate: cert, key: key, since: time.Now()}
	if err := f.register(m); err != nil {
		return err
	}
	if f.revoked.Certificate(cert) { // meanwhile: whoever says so may not have seen m
		f.endRevoked()
		return errRevoked
	}
	return nil
}

var errRevoked = protocol.Errorf(protocol.KindUnauthenticated, "the certificate was revoked")

// endRevoked ends the tunnels of sandboxes whose certificates are void.
func (f *Fleet) endRevoked() {
	f.mu.Lock()
	members := f.list()
	f.mu.Unlock()
	for _, m := range members {
		if f.revoked.Certificate(m.certificate) {
			f.log.Warn("certificate revoked: the tunnel is ended", "sandbox", m.hello.SandboxID,
				"certificate", m.certificate.ID)
			m.session.CloseWith(errRevoked)
		}
	}
}

func (f *Fleet) register(next *member) error {
	id := next.hello.SandboxID
	f.mu.Lock()
	if f.draining {
		f.mu.Unlock()
		return protocol.Fault(protocol.KindRestarting, nil)
	}
	incumbent := f.members[id]
	if incumbent != nil {
		if err := next.mayReplace(incumbent); err != nil {
			f.mu.Unlock()
			f.log.Warn("registration refused", "sandbox", id, "instance", next.hello.InstanceID,
				"incumbent", incumbent.hello.InstanceID, "reason", err.Error())
			return err
		}
	}
	f.members[id] = next
	f.traffic.begin(next.session)
	f.announce()
	f.mu.Unlock()

	f.log.Info("sandbox connected", "sandbox", id, "instance", next.hello.InstanceID,
		"generation", next.hello.Generation, "revision", next.hello.Revision, "isolation", next.hello.Isolation)
	if incumbent != nil {
		f.dismiss(incumbent, next)
	}
	context.AfterFunc(next.session.Context(), func() {
		f.traffic.end(next.session)
		f.unregister(next)
	})
	return nil
}

// mayReplace refuses when m must not take the incumbent's place.
func (m *member) mayReplace(incumbent *member) error {
	select {
	case <-incumbent.session.Done():
		return nil
	default:
	}
	if !m.key.Equal(incumbent.key) {
		return protocol.Errorf(protocol.KindForbidden, "another key holds this sandbox id at the moment")
	}
	if m.hello.Generation <= incumbent.hello.Generation {
		return protocol.Errorf(protocol.KindSuperseded,
			"instance %s of this sandbox is connected with generation %d, this one has %d",
			incumbent.hello.InstanceID, incumbent.hello.Generation, m.hello.Generation)
	}
	return nil
}

// dismiss tells the loser that winner took over and ends its tunnel.
func (f *Fleet) dismiss(loser, winner *member) {
	if loser.hello.InstanceID != winner.hello.InstanceID {
		f.log.Warn("two copies of one sandbox: the older is dismissed", "sandbox", loser.hello.SandboxID,
			"older", loser.hello.InstanceID, "newer", winner.hello.InstanceID)
	}
	loser.session.GoAway(protocol.GoAway{
		Reason:     protocol.KindSuperseded,
		Message:    "instance " + winner.hello.InstanceID + " registered this sandbox with a higher generation",
		InstanceID: winner.hello.InstanceID,
	})
	loser.session.CloseWith(protocol.Errorf(protocol.KindSuperseded, "superseded"))
}

func (f *Fleet) unregister(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members[m.hello.SandboxID] != m {
		return
	}
	delete(f.members, m.hello.SandboxID)
	f.announce()
	f.log.Info("sandbox disconnected", "sandbox", m.hello.SandboxID, "instance", m.hello.InstanceID, "reason", m.session.Err())
}

// announce wakes everyone in Wait. The caller holds mu.
func (f *Fleet) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Session returns the tunnel of a connected sandbox.
func (f *Fleet) Session(id protocol.SandboxID) (*tunnel.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[id]; m != nil {
		return m.session, nil
	}
	return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
}

// Wait returns the primary tunnel of a sandbox, waiting for it until ctx ends.
// When the primary is at another relay, whose origin is known, it fails with a
// *[tunnel.StandbyError].
func (f *Fleet) Wait(ctx context.Context, id protocol.SandboxID) (*tunnel.Session, error) {
	began := time.Now()
	for {
		f.mu.Lock()
		m, changed := f.members[id], f.changed
		f.mu.Unlock()
		var news <-chan struct{}
		var again <-chan time.Time
		if m != nil {
			v := m.judge(began, time.Now())
			if v.settled {
				return m.session, v.err
			}
			news = v.changed
			if v.wait > 0 {
				timer := time.NewTimer(v.wait)
				defer timer.Stop()
				again = timer.C
			}
		}
		select {
		case <-changed:
		case <-news:
		case <-again:
		case <-ctx.Done():
			return nil, protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected")
		}
	}
}
