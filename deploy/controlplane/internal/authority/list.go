// Package authority publishes what others may believe: the keys that sign, and
// the list of what is void before its time.
package authority

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol/jws"
)

// relistAfter is how long a signed list is handed out, changed or not, so that
// its readers can tell that it is recent.
const relistAfter = time.Minute

// A List signs the list of what is void before its time. The store counts the
// changes, those of other processes too, and tells cheaply where it stands.
type List struct {
	// Static after construction.
	store  *store.Grants
	keys   *keyring.Ring
	set    *jws.RevocationSet // kept up to date
	clock  clock.Clock
	logger *slog.Logger

	mu sync.Mutex
	// Guarded by mu.
	list  signedList
	known bool // list is one
}

// A signedList is the list at one moment.
type signedList struct {
	number uint64
	grants []store.Grant // what it voids and that would be valid
	tokens []string      // compact JWS, of which each is a part
	kid    string
	signed time.Time
}

// NewList returns the list of what st has revoked. It keeps set up to date, and
// is signed by keys.
func NewList(st *store.Grants, keys *keyring.Ring, set *jws.RevocationSet, clk clock.Clock, logger *slog.Logger) *List {
	return &List{store: st, keys: keys, set: set, clock: clk, logger: logger}
}

// Routes returns the routes at which anybody reads the keys and the list.
func (v *List) Routes() []web.Route {
	return []web.Route{
		web.Get("/.well-known/jwks.json", v.getKeys).For(web.Relays),
		web.Get("/.well-known/revocations", v.getRevocations).For(web.Relays),
	}
}

// Refresh brings the set up to date.
func (v *List) Refresh(ctx context.Context) error {
	_, err := v.current(ctx)
	return err
}

// current returns the list as it stands. It is signed anew when something
// changed, when another key signs, and every minute.
func (v *List) current(ctx context.Context) (signedList, error) {
	number, err := v.store.RevocationNumber(ctx)
	if err != nil {
		return signedList{}, err
	}
	now, signer := v.clock.Now(), v.keys.Signer()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known && v.list.number >= number && v.list.kid == signer.Kid() && now.Sub(v.list.signed).Abs() < relistAfter {
		return v.list, nil
	}
	list, err := v.store.Revocations(ctx, now)
	if err != nil {
		return signedList{}, err
	}
	grants, err := v.store.RevokedGrants(ctx, now)
	if err != nil {
		return signedList{}, err
	}
	list.IssuedAt = now.Unix()
	v.set.Apply(&list) // here it holds even if it can't be signed
	tokens, err := signParts(signer, list)
	if err != nil {
		return signedList{}, fmt.Errorf("revocation list %d: %w", list.Number, err)
	}
	if !v.known || v.list.number != list.Number {
		v.logger.Info("revocation list", "number", list.Number, "grants", len(list.Grants),
			"subjects", len(list.Subjects), "certificates", len(list.Certificates), "parts", len(tokens))
	}
	v.list, v.known = signedList{list.Number, grants, tokens, signer.Kid(), now}, true
	return v.list, nil
}

// maxPartBytes bounds the entries of one object, so that it fits a token once it
// is signed: base64url makes four bytes of three.
const maxPartBytes = 44 << 10

// parts divides a list into such as fit a token, each with the list's number;
// there is one at least.
func parts(list jws.Revocations) []jws.Revocations {
	empty := jws.Revocations{Number: list.Number, IssuedAt: list.IssuedAt}
	all, used := []jws.Revocations{empty}, 0
	part := func(entry any) *jws.Revocations { // the one that takes it
		data, err := json.Marshal(entry)
		if err != nil {
			panic(err) // no entry holds what JSON lacks
		}
		if used += len(data) + 1; used > maxPartBytes {
			all, used = append(all, empty), len(data)+1
		}
		return &all[len(all)-1]
	}
	for _, v := range list.Subjects {
		p := part(v)
		p.Subjects = append(p.Subjects, v)
	}
	for _, v := range list.Grants {
		p := part(v)
		p.Grants = append(p.Grants, v)
	}
	for _, v := range list.Certificates {
		p := part(v)
		p.Certificates = append(p.Certificates, v)
	}
	return all
}

// signParts signs all parts of a list.
func signParts(signer *jws.Signer, list jws.Revocations) (tokens []string, err error) {
	for _, part := range parts(list) {
		token, err := signer.SignRevocations(part)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// getRevocations serves the signed list as it is, one part on each line.
func (v *List) getRevocations(w *web.Writer, r *http.Request) error {
	list, err := v.current(r.Context())
	if err != nil {
		return err
	}
	etag := fmt.Sprintf(`"%d"`, list.number)
	w.Header().Set("Cache-Control", "no-cache") // it may be kept, and must be asked for again
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return w.Text("application/jose", strings.Join(list.tokens, "\n"))
}

// jwksMaxAge is how long others may cache the key set, in seconds. They refresh
// it within 20 s, so that a revoked key is dead everywhere within 30 s.
const jwksMaxAge = "5"

// getKeys serves the public keys as they are, without members of ours.
func (v *List) getKeys(w *web.Writer, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age="+jwksMaxAge)
	return w.Document(http.StatusOK, json.RawMessage(v.keys.JWKS()))
}
