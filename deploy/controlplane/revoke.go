package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
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
	now    func() time.Time
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
	token  string        // compact JWS
	kid    string
	signed time.Time
}

func newRevocations(st *store.Store, keys *keyring.Ring, set *jws.RevocationSet, now func() time.Time, logger *slog.Logger) *revocations {
	return &revocations{store: st, keys: keys, set: set, now: now, logger: logger}
}

// refresh brings the set up to date.
func (v *revocations) refresh(ctx context.Context) error {
	_, err := v.current(ctx)
	return err
}

// current returns the list as it stands. It is signed anew when something
// changed, when another key signs, and every minute.
func (v *revocations) current(ctx context.Context) (signedList, error) {
	number, err := v.store.RevocationNumber(ctx)
	if err != nil {
		return signedList{}, err
	}
	now, signer := v.now(), v.keys.Signer()
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
	fold(&list, grants)
	list.IssuedAt = now.Unix()
	v.set.Apply(&list) // here it holds even if it can't be signed
	if out := trim(&list); out > 0 {
		v.logger.Error("the revocation list is too long: relays and agents aren't told of all", "left_out", out)
	}
	token, err := signer.SignRevocations(list)
	if err != nil {
		return signedList{}, fmt.Errorf("revocation list %d: %w", list.Number, err)
	}
	if !v.known || v.list.number != list.Number {
		v.logger.Info("revocation list", "number", list.Number, "grants", len(list.Grants),
			"subjects", len(list.Subjects), "certificates", len(list.Certificates))
	}
	v.list, v.known = signedList{list.Number, grants, token, signer.Kid(), now}, true
	return v.list, nil
}

// maxListedGrants bounds the single grants on a list, which has to fit a token.
const maxListedGrants = 256

// Beyond these a list could outgrow a token.
const (
	maxListedSubjects     = 128
	maxListedCertificates = 256
)

// trim takes what is too much off a list, first what expires first, and returns
// how many that were. A list that misses something is better than none: here
// all of it holds.
func trim(list *jws.Revocations) (out int) {
	if over := len(list.Subjects) - maxListedSubjects; over > 0 {
		slices.SortFunc(list.Subjects, func(a, b jws.RevokedSubject) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
		list.Subjects, out = list.Subjects[over:], out+over
	}
	if over := len(list.Certificates) - maxListedCertificates; over > 0 {
		slices.SortFunc(list.Certificates, func(a, b jws.RevokedCertificate) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
		list.Certificates, out = list.Certificates[over:], out+over
	}
	return out
}

// A holding is what one user has in one dashboard.
type holding struct {
	user      protocol.UserID
	dashboard string
}

// fold takes single grants off a list that has too many, and voids all that
// their users got in that dashboard so far instead: who still may do something
// there asks for a new grant. Users with the most go first, so that nobody can
// crowd others out.
func fold(list *jws.Revocations, grants []store.Grant) {
	if len(list.Grants) <= maxListedGrants {
		return
	}
	holdings := make(map[protocol.GrantID]holding, len(grants))
	subjects := make(map[holding]*jws.RevokedSubject)
	for _, g := range grants {
		at := holding{g.User, g.Dashboard}
		holdings[g.ID] = at
		if subjects[at] == nil {
			subjects[at] = &jws.RevokedSubject{Subject: g.User, Dashboard: g.Dashboard}
		}
		subjects[at].Before = max(subjects[at].Before, g.IssuedAt.Unix()+1)
		subjects[at].ExpiresAt = max(subjects[at].ExpiresAt, g.ExpiresAt.Unix()+1)
	}
	counts := make(map[holding]int)
	for _, g := range list.Grants {
		counts[holdings[g.ID]]++
	}
	most := slices.SortedFunc(maps.Keys(subjects), func(a, b holding) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.user, b.user), cmp.Compare(a.dashboard, b.dashboard))
	})
	for _, at := range most {
		if len(list.Grants) <= maxListedGrants {
			return
		}
		list.Subjects = append(list.Subjects, *subjects[at])
		list.Grants = slices.DeleteFunc(list.Grants, func(g jws.RevokedGrant) bool { return holdings[g.ID] == at })
	}
}

// getRevocations serves the signed list as it is.
func (s *Server) getRevocations(w http.ResponseWriter, r *http.Request) error {
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
	w.Header().Set("Content-Type", "application/jose")
	if _, err := w.Write([]byte(list.token)); err != nil {
		s.logger.Debug("an answer was not taken", "error", err)
	}
	return nil
}

// revokeGrantsOf revokes what a user may still do in a dashboard by the grants
// they hold: after they were removed or lost a capability.
func (s *Server) revokeGrantsOf(ctx context.Context, user protocol.UserID, dashboard string) error {
	ids, err := s.store.RevokeGrantsOf(ctx, user, dashboard, s.now())
	if err != nil {
		return err
	}
	s.logger.Info("grants revoked", "user", user, "dashboard", dashboard, "grants", len(ids))
	s.spread.kick()
	return nil
}

// deleteGrant revokes a grant: one's own, or one for a dashboard that one owns.
// Others don't exist for the caller.
func (s *Server) deleteGrant(w http.ResponseWriter, r *http.Request) error {
	user, err := s.asUser(w, r)
	if err != nil {
		return err
	}
	missing := protocol.Errorf(protocol.KindNotFound, "no such grant")
	id := protocol.GrantID(r.PathValue("id"))
	if !protocol.ValidID(id) {
		return missing
	}
	grant, err := s.store.Grant(r.Context(), id)
	if err != nil {
		return err
	}
	if grant.User != user.ID {
		_, member, err := s.store.DashboardFor(r.Context(), user.ID, grant.Dashboard)
		if err != nil && protocol.KindOf(err) != protocol.KindNotFound {
			return err
		}
		if err != nil || member.Role != store.RoleOwner {
			return missing
		}
	}
	if err := s.store.RevokeGrant(r.Context(), id, s.now()); err != nil {
		return err
	}
	s.logger.Info("grant revoked", "grant", id, "of", grant.User, "by", user.ID)
	s.spread.kick()
	return none(w)
}
