package controlplane

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
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// relistAfter is how long a signed list is handed out, changed or not, so that
// its readers can tell that it is recent.
const relistAfter = time.Minute

// revocations signs the list of what is void before its time. The store counts
// the changes, those of other processes too, and tells cheaply where it stands.
type revocations struct {
	// Static after construction.
	store  *store.Store
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

func newRevocations(st *store.Store, keys *keyring.Ring, set *jws.RevocationSet, clk clock.Clock, logger *slog.Logger) *revocations {
	return &revocations{store: st, keys: keys, set: set, clock: clk, logger: logger}
}

// Refresh brings the set up to date.
func (v *revocations) Refresh(ctx context.Context) error {
	_, err := v.current(ctx)
	return err
}

// current returns the list as it stands. It is signed anew when something
// changed, when another key signs, and every minute.
func (v *revocations) current(ctx context.Context) (signedList, error) {
	number, err := v.store.Grants.RevocationNumber(ctx)
	if err != nil {
		return signedList{}, err
	}
	now, signer := v.clock.Now(), v.keys.Signer()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known && v.list.number >= number && v.list.kid == signer.Kid() && now.Sub(v.list.signed).Abs() < relistAfter {
		return v.list, nil
	}
	list, err := v.store.Grants.Revocations(ctx, now)
	if err != nil {
		return signedList{}, err
	}
	grants, err := v.store.Grants.RevokedGrants(ctx, now)
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
func (s *Server) getRevocations(w *web.Writer, r *http.Request) error {
	list, err := s.list.current(r.Context())
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

// RevokeOf revokes what a user may still do in a dashboard by the grants
// they hold: after they were removed or lost a capability.
func (s *Server) RevokeOf(ctx context.Context, user protocol.UserID, dashboard string) error {
	ids, err := s.store.Grants.RevokeGrantsOf(ctx, user, dashboard, s.clock.Now())
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		s.logger.Info("grants revoked", "user", user, "dashboard", dashboard, "grants", len(ids))
		s.spread.kick()
	}
	return nil
}

// RevokeAll revokes what everybody may still do in a dashboard.
func (s *Server) RevokeAll(ctx context.Context, dashboard string) error {
	holders, err := s.store.Grants.GrantHolders(ctx, dashboard, s.clock.Now())
	if err != nil {
		return err
	}
	for _, user := range holders {
		if err := s.RevokeOf(ctx, user, dashboard); err != nil {
			return err
		}
	}
	return nil
}

// deleteGrant revokes a grant: one's own, or one for a dashboard that one owns.
// Others don't exist for the caller.
func (s *Server) deleteGrant(w *web.Writer, r *http.Request) error {
	user, err := s.gate.User(w, r)
	if err != nil {
		return err
	}
	missing := protocol.Errorf(protocol.KindNotFound, "no such grant")
	id := protocol.GrantID(r.PathValue("id"))
	if !protocol.ValidID(id) {
		return missing
	}
	grant, err := s.store.Grants.Grant(r.Context(), id)
	if err != nil {
		return err
	}
	if grant.User != user.ID {
		_, member, err := s.store.Boards.DashboardFor(r.Context(), user.ID, grant.Dashboard)
		if err != nil && protocol.KindOf(err) != protocol.KindNotFound {
			return err
		}
		if err != nil || member.Role != store.RoleOwner {
			return missing
		}
	}
	if err := s.store.Grants.RevokeGrant(r.Context(), id, s.clock.Now()); err != nil {
		return err
	}
	s.logger.Info("grant revoked", "grant", id, "of", grant.User, "by", user.ID)
	s.spread.kick()
	return w.None()
}
