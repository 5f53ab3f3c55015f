package jws

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// keptAfterExpiry is how long an entry is kept after what it revokes has
	// expired: verifiers allow for the skew, and a clock may be behind.
	keptAfterExpiry = 2 * Skew
	// keptAfterHeard is how long it is kept at least, whatever the clock says: a
	// clock that jumps ahead and back must not restore a grant.
	keptAfterHeard = protocol.MaxGrantTTL + keptAfterExpiry
	// forgetInterval is how often entries are checked for removal.
	forgetInterval = time.Minute
)

// A RevocationSet is everything known to be revoked: the entries of all lists,
// grants added singly, and whatever was signed with a key that is no longer
// published. Revoked objects stay so until they expire. It is safe for
// concurrent use.
type RevocationSet struct {
	now func() time.Time // static after construction

	mu sync.Mutex
	// Guarded by mu.
	number       uint64 // highest number of a list
	known        bool   // there was a list
	grants       map[protocol.GrantID]void
	subjects     map[protocol.UserID]map[string]voidSubject // by dashboard
	certificates map[string]void
	forgot       time.Time // last removal of expired entries
	trusted      *KeySet   // nil: not known yet
	changed      []func()
}

// A void says how long an entry is kept.
type void struct {
	expires int64     // Unix seconds: expiry of what is revoked
	heard   time.Time // with a monotonic reading, where the clock has one
}

// A voidSubject revokes what a subject got before a moment.
type voidSubject struct {
	before int64 // Unix seconds
	void
}

// NewRevocationSet returns an empty set.
func NewRevocationSet() *RevocationSet { return NewRevocationSetBy(time.Now) }

// NewRevocationSetBy returns an empty set that reads the time with now.
func NewRevocationSetBy(now func() time.Time) *RevocationSet {
	return &RevocationSet{
		now: now, forgot: now(), grants: map[protocol.GrantID]void{},
		subjects: map[protocol.UserID]map[string]voidSubject{}, certificates: map[string]void{},
	}
}

// OnChange sets fn to be called after each change, by whoever made it. It must
// be called before the set is used.
func (s *RevocationSet) OnChange(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, fn)
}

// Apply adds the entries of a verified list and reports whether any was new.
// The list may be older than others, or one part of several: entries that it
// lacks stay.
func (s *RevocationSet) Apply(r *Revocations) bool {
	return s.change(func(now time.Time) bool {
		s.number, s.known = max(s.number, r.Number), true
		news := false
		for _, v := range r.Grants {
			news = keep(s.grants, v.ID, void{v.ExpiresAt, now}) || news
		}
		for _, v := range r.Certificates {
			news = keep(s.certificates, v.ID, void{v.ExpiresAt, now}) || news
		}
		for _, v := range r.Subjects {
			news = s.keepSubject(v, now) || news
		}
		return news
	})
}

// keep adds id with the later of both expiries, and reports whether it was new.
func keep[K comparable](known map[K]void, id K, v void) bool {
	old, ok := known[id]
	v.expires = max(v.expires, old.expires)
	known[id] = v
	return !ok
}

// keepSubject is keep for a subject, of whom the latest moment counts: it covers
// what earlier ones cover. It is called with mu held.
func (s *RevocationSet) keepSubject(v RevokedSubject, now time.Time) bool {
	of := s.subjects[v.Subject]
	if of == nil {
		of = map[string]voidSubject{}
		s.subjects[v.Subject] = of
	}
	old, ok := of[v.Dashboard]
	of[v.Dashboard] = voidSubject{max(v.Before, old.before), void{max(v.ExpiresAt, old.expires), now}}
	return !ok || v.Before > old.before
}

// Add adds revoked grants for as long as a grant can live. It calls OnChange's
// function even if they were known: the first call may still be running, and
// everything that they opened must be closed when Add returns.
func (s *RevocationSet) Add(ids ...protocol.GrantID) {
	s.change(func(now time.Time) bool {
		for _, id := range ids {
			keep(s.grants, id, void{now.Add(protocol.MaxGrantTTL).Unix(), now})
		}
		return true
	})
}

// change has f change the set, and tells of it if f says so, after the lock is
// given up. f is called with mu held.
func (s *RevocationSet) change(f func(now time.Time) bool) bool {
	s.mu.Lock()
	now := s.now()
	news := f(now)
	s.forget(now)
	changed := s.changed
	s.mu.Unlock()
	if news {
		for _, fn := range changed {
			fn()
		}
	}
	return news
}

// forget takes out, now and then, what voids nothing any more. It is called
// with mu held.
func (s *RevocationSet) forget(now time.Time) {
	if now.Sub(s.forgot) < forgetInterval {
		return
	}
	s.forgot = now
	maps.DeleteFunc(s.grants, func(_ protocol.GrantID, v void) bool { return v.over(now) })
	maps.DeleteFunc(s.certificates, func(_ string, v void) bool { return v.over(now) })
	for subject, of := range s.subjects {
		maps.DeleteFunc(of, func(_ string, v voidSubject) bool { return v.over(now) })
		if len(of) == 0 {
			delete(s.subjects, subject)
		}
	}
}

// over reports whether v can be dropped. Both clocks must say so: the wall
// clock alone may be wrong, and the time since it was added says nothing of a
// certificate.
func (v void) over(now time.Time) bool {
	return now.Sub(v.heard) > keptAfterHeard && now.Unix() > v.expires+int64(keptAfterExpiry/time.Second)
}

// trust sets the published keys. Whatever others have signed is revoked, even
// if it is in use: a revoked key must not live on in it.
func (s *RevocationSet) trust(set *KeySet) {
	s.change(func(time.Time) bool {
		lost := false
		if s.trusted != nil {
			for kid := range s.trusted.keys {
				_, kept := set.keys[kid]
				lost = lost || !kept
			}
		}
		s.trusted = set
		return lost
	})
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

// Number returns the highest number of a list, false before the first.
func (s *RevocationSet) Number() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number, s.known
}

// Grant reports whether g is revoked.
func (s *RevocationSet) Grant(g *Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, named := s.grants[g.ID]; named || s.signedByNobody(g.Kid) {
		return true
	}
	of := s.subjects[g.Subject] // before is 0 if there is no entry
	return g.IssuedAt < of[g.Dashboard].before || g.IssuedAt < of[""].before
}

// Command reports whether the grant under which c was asked for is revoked, or the
// person's of any dashboard since: a command that waits is looked at again.
func (s *RevocationSet) Command(c *Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, named := s.grants[c.GrantID]; named {
		return true
	}
	for _, of := range s.subjects[c.UserID] {
		if time.UnixMilli(c.IssuedAt).Unix() < of.before {
			return true
		}
	}
	return false
}

// Certificate reports whether c is revoked.
func (s *RevocationSet) Certificate(c *Certificate) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, named := s.certificates[c.ID]
	return named || s.signedByNobody(c.Kid)
}

// Known returns all entries as one list, for a copy on disk, which may be
// larger than a token.
func (s *RevocationSet) Known() *Revocations {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &Revocations{Number: s.number}
	for id, v := range s.grants {
		r.Grants = append(r.Grants, RevokedGrant{id, v.expires})
	}
	for subject, of := range s.subjects {
		for dashboard, v := range of {
			r.Subjects = append(r.Subjects, RevokedSubject{subject, dashboard, v.before, v.expires})
		}
	}
	for id, v := range s.certificates {
		r.Certificates = append(r.Certificates, RevokedCertificate{id, v.expires})
	}
	slices.SortFunc(r.Grants, func(a, b RevokedGrant) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(r.Subjects, func(a, b RevokedSubject) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Dashboard, b.Dashboard))
	})
	slices.SortFunc(r.Certificates, func(a, b RevokedCertificate) int { return cmp.Compare(a.ID, b.ID) })
	return r
}
