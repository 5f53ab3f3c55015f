package device

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A Store knows sandboxes and the certificates that they were given.
type Store interface {
	Sandbox(ctx context.Context, id protocol.SandboxID) (store.Sandbox, error)
	Certificate(ctx context.Context, id string) (store.Certificate, error)
}

// A RevocationList is believed as it was when it was last refreshed.
type RevocationList interface {
	Refresh(ctx context.Context) error
}

// A Gate asks sandboxes who they are.
type Gate struct {
	// Static after construction.
	store   Store
	keys    *keyring.Ring
	revoked RevocationList
	clock   clock.Clock
	limits  *limits
}

// NewGate returns a gate for the sandboxes in st whose certificates keys verify.
func NewGate(st Store, keys *keyring.Ring, revoked RevocationList, clk clock.Clock) *Gate {
	return &Gate{store: st, keys: keys, revoked: revoked, clock: clk, limits: newLimits()}
}

// Request returns the sandbox whose device key signed the whole of r, and
// r's body. The signature is over method, target, body and time: the connection
// it came on says nothing, since a pool of them carries an agent's requests.
func (g *Gate) Request(r *http.Request) (protocol.SandboxID, []byte, error) {
	sandbox, device, err := g.Certified(r.Context(), r.Header.Get(protocol.CertificateHeader))
	if err != nil {
		return "", nil, err
	}
	body, err := web.ReadAll(r)
	if err != nil {
		return "", nil, err
	}
	unsigned := protocol.Errorf(protocol.KindUnauthenticated, "the request is not signed by the certified key")
	at, err := strconv.ParseInt(r.Header.Get(protocol.SignedAtHeader), 10, 64)
	if err != nil {
		return "", nil, unsigned
	}
	signature, err := base64.StdEncoding.DecodeString(r.Header.Get(protocol.SignatureHeader))
	if err != nil || len(signature) == 0 {
		return "", nil, unsigned
	}
	transcript := protocol.DeviceTranscript(sandbox, r.Method, r.RequestURI, sha256.Sum256(body), at)
	if !jws.VerifyDevice(device.Public, transcript, signature) {
		return "", nil, unsigned
	}
	if age := g.clock.Now().Sub(time.UnixMilli(at)); age > protocol.ClockSkew || age < -protocol.ClockSkew {
		return "", nil, protocol.Errorf(protocol.KindExpired, "the request was signed more than %s from now", protocol.ClockSkew)
	}
	return sandbox, body, nil
}

// Certified returns the sandbox and the device key that token certifies, if
// that still holds.
//
// The store decides: a sandbox has one device key, and none once it was
// revoked. So the certificate of a signing key that was revoked serves here as
// well, if it is one that we gave out: otherwise whoever has to revoke a
// signing key would have to invite every sandbox again. At a relay such a
// certificate is worth nothing.
func (g *Gate) Certified(ctx context.Context, token string) (protocol.SandboxID, Key, error) {
	void := protocol.Errorf(protocol.KindUnauthenticated, "the certificate is not valid")
	if err := g.revoked.Refresh(ctx); err != nil {
		return "", Key{}, err
	}
	cert, err := g.keys.Keys().Certificate(ctx, token)
	if err != nil {
		if cert, err = g.ours(ctx, token, err); err != nil {
			return "", Key{}, err
		}
	}
	device, err := Parse(cert.JWK)
	if err != nil {
		return "", device, void
	}
	sandbox, err := g.store.Sandbox(ctx, cert.Subject)
	switch {
	case err != nil && protocol.KindOf(err) == protocol.KindNotFound:
		return "", device, void
	case err != nil:
		return "", device, err
	case sandbox.DeviceKey != device.Thumbprint: // of a revoked one it is empty
		return "", device, void
	}
	return cert.Subject, device, nil
}

// ours returns the certificate of a signing key that is believed no more, if it
// is one that we gave out. Else it returns the error why.
func (g *Gate) ours(ctx context.Context, token string, why error) (*jws.Certificate, error) {
	if !errors.Is(why, jws.ErrUnknownKey) {
		return nil, why
	}
	var cert jws.Certificate
	parts := strings.Split(token, ".") // the token passed the profile, else its key would not be unknown
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || protocol.UnmarshalObject(payload, &cert) != nil {
		return nil, why
	}
	known, err := g.store.Certificate(ctx, cert.ID)
	if err != nil {
		if protocol.KindOf(err) == protocol.KindNotFound {
			err = why
		}
		return nil, err
	}
	if known.Sandbox != cert.Subject || !known.RevokedAt.IsZero() {
		return nil, why
	}
	if g.clock.Now().After(known.ExpiresAt.Add(protocol.ClockSkew)) {
		return nil, protocol.Errorf(protocol.KindExpired, "certificate: expired")
	}
	return &cert, nil
}

// Enter admits one request of a sandbox, until leave; an error of KindTooMany
// says that there are too many.
func (g *Gate) Enter(sandbox protocol.SandboxID) (leave func(), err error) {
	return g.limits.enter(sandbox, g.clock.Now())
}
