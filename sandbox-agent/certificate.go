package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// renewPath is where the control plane renews certificates.
	renewPath = "/certificate"
	// longestRenewPause bounds the pause between two attempts to renew.
	longestRenewPause = 5 * time.Minute
	// refusedPause is the least time between two renewals for the reason that
	// a relay doesn't believe the certificate.
	refusedPause = time.Minute
)

// A credential is the certificate that the agent registers with.
type credential struct {
	token           string
	issued, expires time.Time // zero: it can't be read
}

// parseCredential reads when a certificate ends. It verifies nothing: who else
// would we be.
func parseCredential(token string) credential {
	c := credential{token: token}
	var claims struct {
		IssuedAt  int64 `json:"iat"`
		ExpiresAt int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil && json.Unmarshal(payload, &claims) == nil && claims.ExpiresAt > claims.IssuedAt {
		c.issued, c.expires = time.Unix(claims.IssuedAt, 0), time.Unix(claims.ExpiresAt, 0)
	}
	return c
}

// renewAt returns when two thirds of c's life are over; never for one whose
// life is not known.
func (c credential) renewAt() (at time.Time, known bool) {
	return c.issued.Add(2 * c.expires.Sub(c.issued) / 3), !c.expires.IsZero()
}

// ending reports whether the last tenth of c's life has begun.
func (c credential) ending(now time.Time) bool {
	return !c.expires.IsZero() && now.After(c.expires.Add(-c.expires.Sub(c.issued)/10))
}

// A holder has the certificate, and renews it in time.
type holder struct {
	// Static after construction.
	agent  *Agent
	doubts chan struct{} // a relay doesn't believe the certificate

	// Guarded by mu.
	mu      sync.Mutex
	current credential
	void    error // the control plane's word that current is; nil: it hasn't said so
}

func newHolder(a *Agent) *holder {
	return &holder{agent: a, doubts: make(chan struct{}, 1), current: parseCredential(a.enrolment.Certificate)}
}

func (h *holder) credential() credential {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

// problem returns what is wrong with the certificate, empty when all is well.
func (h *holder) problem(now time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch end := h.current.expires.UTC().Format(time.RFC3339); {
	case h.void != nil:
		return "the certificate is refused: " + h.void.Error()
	case h.current.ending(now):
		return "the certificate ends at " + end + " and could not be renewed"
	}
	return ""
}

// note remembers what the control plane says of the certificate.
func (h *holder) note(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch protocol.KindOf(err) {
	case protocol.KindUnauthenticated, protocol.KindExpired, protocol.KindForbidden:
		if controlplane.Refused(err) {
			h.void = err
		}
	}
}

// doubted notes that a relay refused the certificate: its signing key may have
// been revoked, which the control plane makes good.
func (h *holder) doubted() {
	select {
	case h.doubts <- struct{}{}:
	default:
	}
}

// keep renews the certificate until ctx ends.
func (h *holder) keep(ctx context.Context) {
	pause := controlplane.Backoff{Longest: longestRenewPause}
	var doubted time.Time // when the last renewal began for that reason
	for {
		if !h.await(ctx, &doubted) {
			return
		}
		err := h.renew(ctx)
		if err == nil {
			pause.Reset()
			h.agent.status.look()
			continue
		}
		if ctx.Err() != nil {
			return
		}
		h.note(err)
		wait := h.patience(pause.Next())
		h.agent.log.Warn("certificate not renewed", "expires", h.credential().expires, "again_in", wait.Round(time.Millisecond), "err", err)
		h.agent.status.look()
		if controlplane.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// await waits until it is time to renew. It returns false when ctx ends.
func (h *holder) await(ctx context.Context, doubted *time.Time) bool {
	at, known := h.credential().renewAt()
	due := time.NewTimer(max(time.Until(at), 0))
	defer due.Stop()
	timer := due.C
	if !known {
		timer = nil
	}
	for {
		select {
		case <-timer:
			return true
		case <-h.doubts:
			if now := time.Now(); doubted.IsZero() || now.Sub(*doubted) >= refusedPause {
				*doubted = now
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// patience shortens a pause where life is short.
func (h *holder) patience(wait time.Duration) time.Duration {
	c := h.credential()
	if life := c.expires.Sub(c.issued); life > 0 {
		return min(wait, max(life/20, controlplane.FirstPause))
	}
	return wait
}

// renew exchanges the certificate for a new one and stores it before its use.
func (h *holder) renew(ctx context.Context) error {
	a, old := h.agent, h.credential()
	answer, err := a.controlPlane.Prove(ctx, a.anyWay, renewPath, func(exporter []byte) (any, error) {
		signature, err := a.device.Sign(protocol.RenewTranscript(a.enrolment.SandboxID, exporter))
		return protocol.RenewRequest{Certificate: old.token, Signature: signature}, err
	})
	if err != nil {
		return err
	}
	enrolment, err := checkEnrolment(answer, a.enrolment.SandboxID, a.device)
	if err != nil {
		return err
	}
	if err := storeEnrolment(a.cfg.Enrolment, enrolment); err != nil {
		return err
	}
	next := parseCredential(enrolment.Certificate)
	h.mu.Lock()
	h.current, h.void = next, nil
	h.mu.Unlock()
	a.log.Info("certificate renewed", "expires", next.expires)
	return nil
}

// anyWay opens a connection to the control plane through a tunnel, or else,
// since the certificate may be what keeps relays from taking one, as an agent
// that isn't registered.
func (a *Agent) anyWay(ctx context.Context) (net.Conn, error) {
	if conn, err := a.throughTunnel(ctx); err == nil {
		return conn, nil
	}
	var last error = protocol.Errorf(protocol.KindUnavailable, "no relay is known")
	for _, addr := range a.tunnels.known() {
		conn, err := tunnel.Connect(ctx, tunnel.DialConfig{Addr: addr, TLS: a.relayTLS(), Carriers: a.cfg.carriers()})
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

// throughTunnel opens a connection to the control plane through the primary
// tunnel.
func (a *Agent) throughTunnel(ctx context.Context) (net.Conn, error) {
	session := a.tunnels.current()
	if session == nil {
		return nil, protocol.Errorf(protocol.KindUnavailable, "no tunnel")
	}
	stream, _, err := session.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
	if err != nil {
		return nil, err
	}
	return stream, nil
}
