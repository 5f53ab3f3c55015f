package authority

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

const (
	// renewPath is where the control plane renews certificates.
	renewPath = "/certificate"
	// longestRenewPause bounds the pause between two attempts to renew.
	longestRenewPause = 5 * time.Minute
	// refusedPause is the least time between two renewals that relays cause by
	// refusing the certificate.
	refusedPause = time.Minute
)

// Credentials are what the sandbox proves itself by: its device key, and the
// certificate of that, which is renewed in time.
type Credentials struct {
	// Static after construction.
	identity *Identity
	client   *controlplane.Client
	dialer   Dialer
	relays   Relays
	changed  chan<- struct{}
	log      *slog.Logger
	doubts   chan struct{} // a relay doesn't believe the certificate

	// Guarded by mu.
	mu      sync.Mutex
	current certificate
	void    error // why the control plane refuses current; nil: it hasn't
}

func newCredentials(o Options, client *controlplane.Client) *Credentials {
	return &Credentials{
		identity: o.Identity, client: client, dialer: o.Dialer, relays: o.Relays, changed: o.Changed, log: o.Log,
		doubts: make(chan struct{}, 1), current: parseCertificate(o.Identity.Enrolment.Certificate),
	}
}

func (c *Credentials) certificate() certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Expires returns when the certificate ends, zero where that isn't known.
func (c *Credentials) Expires() time.Time { return c.certificate().expires }

// Problem returns what is wrong with the certificate, empty when all is well.
func (c *Credentials) Problem(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch end := c.current.expires.UTC().Format(time.RFC3339); {
	case c.void != nil:
		return "the certificate is refused: " + c.void.Error()
	case c.current.ending(now):
		return "the certificate ends at " + end + " and could not be renewed"
	}
	return ""
}

// SignHello adds the certificate to hello, and the signature that answers a
// relay's challenge on the connection that exporter belongs to.
func (c *Credentials) SignHello(hello *protocol.Hello, challenge protocol.Challenge, exporter []byte) (err error) {
	hello.Certificate = c.certificate().token
	hello.Signature, err = c.identity.Device.Sign(protocol.HelloTranscript(challenge.RelayID, challenge.Nonce, exporter))
	return err
}

// Do sends a request to the control plane that says, by the device key, which
// sandbox it comes from. target is a path with its query. It returns the answer,
// whatever its status, of at most protocol.MaxGatewayAnswer bytes.
func (c *Credentials) Do(ctx context.Context, method, target string, body []byte) ([]byte, int, error) {
	at := time.Now().UnixMilli()
	transcript := protocol.DeviceTranscript(c.identity.Enrolment.SandboxID, method, target, sha256.Sum256(body), at)
	signature, err := c.identity.Device.Sign(transcript)
	if err != nil {
		return nil, 0, err
	}
	header := http.Header{}
	header.Set(protocol.CertificateHeader, c.certificate().token)
	header.Set(protocol.SignedAtHeader, strconv.FormatInt(at, 10))
	header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(signature))
	return c.client.Call(ctx, method, target, header, body, protocol.MaxGatewayAnswer)
}

// Doubted notes that a relay refused the certificate: its signing key may have
// been revoked, and then the control plane issues another one.
func (c *Credentials) Doubted() { wake(c.doubts) }

// wake sends on a channel unless somebody has done so already.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep renews the certificate until ctx ends.
func (c *Credentials) keep(ctx context.Context) {
	backoff := controlplane.Backoff{Longest: longestRenewPause}
	var doubted time.Time // when a relay's refusal caused a renewal last
	for {
		if !c.await(ctx, &doubted) {
			return
		}
		err := c.renew(ctx)
		if err == nil {
			backoff.Reset()
			wake(c.changed)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.note(err)
		wait := c.patience(backoff.Next())
		c.log.Warn("certificate not renewed", "expires", c.Expires(), "again_in", wait.Round(time.Millisecond), "err", err)
		wake(c.changed)
		if pause.For(ctx, wait) != nil {
			return
		}
	}
}

// await waits until it is time to renew. It returns false when ctx ends.
func (c *Credentials) await(ctx context.Context, doubted *time.Time) bool {
	at, known := c.certificate().renewAt()
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
		case <-c.doubts:
			if now := time.Now(); doubted.IsZero() || now.Sub(*doubted) >= refusedPause {
				*doubted = now
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// note remembers that the control plane refuses the certificate, if that is what
// err says.
func (c *Credentials) note(err error) {
	switch protocol.KindOf(err) {
	case protocol.KindUnauthenticated, protocol.KindExpired, protocol.KindForbidden:
		if controlplane.Refused(err) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.void = err
		}
	}
}

// patience shortens a pause where the certificate's life is short.
func (c *Credentials) patience(wait time.Duration) time.Duration {
	current := c.certificate()
	if life := current.expires.Sub(current.issued); life > 0 {
		return min(wait, max(life/20, controlplane.FirstPause))
	}
	return wait
}

// renew exchanges the certificate for a new one and stores it before its use.
// The list of relays that comes along is adopted then.
func (c *Credentials) renew(ctx context.Context) error {
	id, old := c.identity, c.certificate()
	answer, err := c.client.Prove(ctx, c.dialAny, renewPath, func(exporter []byte) (any, error) {
		signature, err := id.Device.Sign(protocol.RenewTranscript(id.Enrolment.SandboxID, exporter))
		return protocol.RenewRequest{Certificate: old.token, Signature: signature}, err
	})
	if err != nil {
		return err
	}
	enrolment, err := checkEnrolment(answer, id.Enrolment.SandboxID, id.Device)
	if err != nil {
		return err
	}
	if err := storeEnrolment(id.file, enrolment); err != nil {
		return err
	}
	next := parseCertificate(enrolment.Certificate)
	c.mu.Lock()
	c.current, c.void = next, nil
	c.mu.Unlock()
	c.log.Info("certificate renewed", "expires", next.expires)
	c.relays.Adopt(enrolment.Relays)
	return nil
}

// dialAny opens a connection to the control plane through a tunnel, or else as
// an agent that isn't registered: relays may refuse tunnels for the very
// certificate that is to be renewed.
func (c *Credentials) dialAny(ctx context.Context) (net.Conn, error) {
	if conn, err := c.dialer.Dial(ctx); err == nil {
		return conn, nil
	}
	return c.dialer.DialUnregistered(ctx)
}
