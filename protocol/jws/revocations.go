package jws

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Revocations list what is void before its time. Number rises with every
// change: a list with a lower one than a list that was seen is out of date.
// What has expired by itself need not stand there.
type Revocations struct {
	Issuer       string               `json:"iss"`
	Audience     string               `json:"aud"`
	Number       uint64               `json:"number"`
	IssuedAt     int64                `json:"iat"` // Unix seconds
	Grants       []RevokedGrant       `json:"grants"`
	Subjects     []RevokedSubject     `json:"subjects"`
	Certificates []RevokedCertificate `json:"certificates"`
}

// A RevokedGrant is one grant that is void.
type RevokedGrant struct {
	ID        protocol.GrantID `json:"jti"`
	ExpiresAt int64            `json:"exp"` // Unix seconds: of the grant
}

// A RevokedSubject is a user whose grants are void that were issued before a
// moment.
type RevokedSubject struct {
	Subject   protocol.UserID `json:"sub"`
	Dashboard string          `json:"dashboard,omitempty"` // empty: in every dashboard
	Before    int64           `json:"before"`              // Unix seconds: grants with a smaller iat
	ExpiresAt int64           `json:"exp"`                 // Unix seconds: when the last of them expires
}

// A RevokedCertificate is a sandbox's certificate that is void.
type RevokedCertificate struct {
	ID        string `json:"jti"`
	ExpiresAt int64  `json:"exp"` // Unix seconds: of the certificate
}

var revocationNames = vocabularyOf(Revocations{})

// Revokes reports whether g is void.
func (r *Revocations) Revokes(g *Grant) bool {
	return slices.ContainsFunc(r.Grants, func(v RevokedGrant) bool { return v.ID == g.ID }) ||
		slices.ContainsFunc(r.Subjects, func(v RevokedSubject) bool { return v.covers(g) })
}

func (v RevokedSubject) covers(g *Grant) bool {
	return v.Subject == g.Subject && g.IssuedAt < v.Before && (v.Dashboard == "" || v.Dashboard == g.Dashboard)
}

// RevokesCertificate reports whether c is void.
func (r *Revocations) RevokesCertificate(c *Certificate) bool {
	return slices.ContainsFunc(r.Certificates, func(v RevokedCertificate) bool { return v.ID == c.ID })
}

// check applies the rules that depend on nothing outside the list.
func (r *Revocations) check() error {
	for _, v := range r.Grants {
		if !protocol.ValidID(v.ID) {
			return errors.New("grants has a jti that is not an id")
		}
	}
	for _, v := range r.Subjects {
		if !protocol.ValidID(v.Subject) || !validOrEmpty(v.Dashboard) {
			return errors.New("subjects has a member that is not an id")
		}
	}
	for _, v := range r.Certificates {
		if !protocol.ValidID(v.ID) {
			return errors.New("certificates has a jti that is not an id")
		}
	}
	if r.IssuedAt < 0 || r.IssuedAt > maxUnixSeconds {
		return errors.New("iat is out of range")
	}
	return nil
}

// openRevocations applies steps 8 to 14 of README.md to a token that passed the
// profile. A list has no end of its own: a newer one takes its place.
func openRevocations(t Token, now time.Time) (*Revocations, error) {
	var r Revocations
	if err := openObject(t, TypeRevocations, revocationNames, &r); err != nil {
		return nil, refused("revocations: %s", err)
	}
	if err := r.check(); err != nil {
		return nil, refused("revocations: %s", err)
	}
	if time.Unix(r.IssuedAt, 0).After(now.Add(Skew)) {
		return nil, refused("revocations: issued in the future")
	}
	return &r, nil
}

// SignRevocations signs r with iss and aud filled in; lists are never null.
func (s *Signer) SignRevocations(r Revocations) (string, error) {
	r.Issuer, r.Audience = Issuer, AudienceFairlead
	if err := r.check(); err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "revocations: %s", err)
	}
	r.Grants, r.Subjects, r.Certificates = present(r.Grants), present(r.Subjects), present(r.Certificates)
	return s.signObject(TypeRevocations, r)
}

func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Revocations verifies a revocation list. Failures are of kind unauthenticated
// or unavailable.
func (k *Keys) Revocations(ctx context.Context, token string) (*Revocations, error) {
	t, err := k.verify(ctx, token)
	if err != nil {
		return nil, err
	}
	return openRevocations(t, k.opts.Now())
}

// maxExtraGrants bounds the grants that [RevocationSet.Add] remembers beside
// the list; the oldest go first. By then lists have long named them.
const maxExtraGrants = 4096

// A RevocationSet is what is known to be void: the newest list that was seen,
// single grants that were heard of since, and all that was signed by a key that
// is no longer published. It is safe for concurrent use.
type RevocationSet struct {
	mu sync.Mutex
	// Guarded by mu.
	list         Revocations
	known        bool // list is one that was seen
	grants       map[protocol.GrantID]struct{}
	certificates map[string]struct{}
	extra        []protocol.GrantID
	trusted      *KeySet // nil: not known yet
	changed      []func()
}

// NewRevocationSet returns an empty set.
func NewRevocationSet() *RevocationSet {
	return &RevocationSet{grants: map[protocol.GrantID]struct{}{}, certificates: map[string]struct{}{}}
}

// OnChange has fn called after each change, by whoever made it. It is called
// before the set is in use.
func (s *RevocationSet) OnChange(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, fn)
}

// Apply takes a verified list unless a newer one was seen, and reports whether
// it did.
func (s *RevocationSet) Apply(r *Revocations) bool {
	s.mu.Lock()
	if s.known && r.Number <= s.list.Number {
		s.mu.Unlock()
		return false
	}
	s.list, s.known = *r, true
	s.index()
	changed := s.changed
	s.mu.Unlock()
	for _, fn := range changed {
		fn()
	}
	return true
}

// Add adds grants that are void, whatever the list says.
func (s *RevocationSet) Add(ids ...protocol.GrantID) {
	s.mu.Lock()
	s.extra = append(s.extra, ids...)
	if over := len(s.extra) - maxExtraGrants; over > 0 {
		s.extra = slices.Clone(s.extra[over:])
	}
	s.index()
	changed := s.changed
	s.mu.Unlock()
	for _, fn := range changed {
		fn()
	}
}

// trust notes which keys are published now. What others have signed is void,
// whoever holds it open: a key that was revoked must not go on through that.
func (s *RevocationSet) trust(set *KeySet) {
	s.mu.Lock()
	lost := false
	if s.trusted != nil {
		for kid := range s.trusted.keys {
			_, kept := set.keys[kid]
			lost = lost || !kept
		}
	}
	s.trusted = set
	changed := s.changed
	s.mu.Unlock()
	if !lost {
		return
	}
	for _, fn := range changed {
		fn()
	}
}

// signedByNobody reports whether the key kid, "" for none that is known, isn't
// published any more. It is called with mu held.
func (s *RevocationSet) signedByNobody(kid string) bool {
	if kid == "" || s.trusted == nil {
		return false
	}
	_, published := s.trusted.keys[kid]
	return !published
}

// index rebuilds the maps. It is called with mu held.
func (s *RevocationSet) index() {
	clear(s.grants)
	clear(s.certificates)
	for _, v := range s.list.Grants {
		s.grants[v.ID] = struct{}{}
	}
	for _, id := range s.extra {
		s.grants[id] = struct{}{}
	}
	for _, v := range s.list.Certificates {
		s.certificates[v.ID] = struct{}{}
	}
}

// Number returns the number of the newest list, false before the first.
func (s *RevocationSet) Number() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list.Number, s.known
}

// Grant reports whether g is void.
func (s *RevocationSet) Grant(g *Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, void := s.grants[g.ID]; void || s.signedByNobody(g.Kid) {
		return true
	}
	return slices.ContainsFunc(s.list.Subjects, func(v RevokedSubject) bool { return v.covers(g) })
}

// Certificate reports whether c is void.
func (s *RevocationSet) Certificate(c *Certificate) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, void := s.certificates[c.ID]
	return void || s.signedByNobody(c.Kid)
}

// Extra returns the grants that Add was told of, for a copy on disk.
func (s *RevocationSet) Extra() []protocol.GrantID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.extra)
}
