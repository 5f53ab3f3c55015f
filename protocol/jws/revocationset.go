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
	// keptAfterExpiry is how long an entry is kept after what it voids has
	// expired: whoever verifies allows for the skew, and a clock may be behind.
	keptAfterExpiry = 2 * Skew
	// keptAfterHeard is how long it is kept at least, whatever the clock says: one
	// that jumps ahead and is put right again must not bring a grant back.
	keptAfterHeard = protocol.MaxGrantTTL + keptAfterExpiry
	// forgetInterval is how often those that have had their time are looked for.
	forgetInterval = time.Minute
)

// A RevocationSet is what is known to be void: all that lists said, single
// grants that were heard of beside them, and all that was signed by a key that
// is no longer published. What is void stays so until it has expired by itself.
// It is safe for concurrent use.
type RevocationSet struct {
	now func() time.Time // static after construction

	mu sync.Mutex
	// Guarded by mu.
	number       uint64 // the highest of a list
	known        bool   // there was a list
	grants       map[protocol.GrantID]void
	subjects     map[protocol.UserID]map[string]voidSubject // by dashboard
	certificates map[string]void
	forgot       time.Time // when what has expired was last taken out
	trusted      *KeySet   // nil: not known yet
	changed      []func()
}

// A void says how long something is remembered.
type void struct {
	expires int64     // Unix seconds: of what is void
	heard   time.Time // with a monotonic reading, where the clock has one
}

// A voidSubject is a void of what somebody got before a moment.
type voidSubject struct {
	before int64 // Unix seconds
	void
}

// NewRevocationSet returns an empty set.
func NewRevocationSet() *RevocationSet { return NewRevocationSetBy(time.Now) }

// NewRevocationSetBy returns an empty set that takes the time from now.
func NewRevocationSetBy(now func() time.Time) *RevocationSet {
	return &RevocationSet{
		now: now, forgot: now(), grants: map[protocol.GrantID]void{},
		subjects: map[protocol.UserID]map[string]voidSubject{}, certificates: map[string]void{},
	}
}

// OnChange has fn called after each change, by whoever made it. It is called
// before the set is in use.
func (s *RevocationSet) OnChange(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, fn)
}

// Apply adds what a verified list says to what is known, and reports whether
// that was anything new. The list may be older than one that was seen, or one
// part of it: nothing is taken back by what a list doesn't say.
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

// keep remembers that id is void, for the longest of what was said of it, and
// reports whether it wasn't known.
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

// Add adds grants that are void, whatever the list says, for as long as a grant
// can live. It tells of them also when they were known: who told of them first
// may not be through, and when Add returns whatever they opened is closed.
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

// over reports whether v needn't be remembered. Both clocks must say so: the
// wall clock alone may be wrong, and time since it was heard of says nothing of
// a certificate.
func (v void) over(now time.Time) bool {
	return now.Sub(v.heard) > keptAfterHeard && now.Unix() > v.expires+int64(keptAfterExpiry/time.Second)
}

// trust notes which keys are published now. What others have signed is void,
// whoever holds it open: a key that was revoked must not go on through that.
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

// Grant reports whether g is void.
func (s *RevocationSet) Grant(g *Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, named := s.grants[g.ID]; named || s.signedByNobody(g.Kid) {
		return true
	}
	of := s.subjects[g.Subject] // before is 0 where nothing is said
	return g.IssuedAt < of[g.Dashboard].before || g.IssuedAt < of[""].before
}

// Certificate reports whether c is void.
func (s *RevocationSet) Certificate(c *Certificate) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, named := s.certificates[c.ID]
	return named || s.signedByNobody(c.Kid)
}

// Known returns all that lists and [RevocationSet.Add] have said, as one list,
// for a copy on disk: what doesn't fit a token fits that.
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
