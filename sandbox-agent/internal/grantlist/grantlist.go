// Package grantlist keeps the grants under which a relay uses one stream for its
// viewers, within bounds that no person can fill for others. It has no clock.
package grantlist

import (
	"iter"
	"maps"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Max bounds the grants of a stream; those of one person
// protocol.MaxPersonGrants does.
const Max = 4096

// BareFor is how long a stream may be without a grant, while its relay presents
// another one.
const BareFor = time.Second

// A List is the grants under which a stream is used. Its zero value is ready. It
// is not safe for concurrent use.
type List struct {
	of     map[protocol.GrantID]Presented // nil: there never was one
	people map[protocol.UserID]int        // how many each has
}

// A Presented grant is one on the list, with what the relay calls it.
type Presented struct {
	*jws.Grant
	Handle uint64
}

// End returns the last moment of g's life. It allows for the skew that its
// verification allowed for: a grant that was just taken must not be dropped at
// once.
func End(g *jws.Grant) time.Time { return g.Expires().Add(jws.Skew) }

// Over reports whether g has ended at now.
func Over(g *jws.Grant, now time.Time) bool { return now.After(End(g)) }

// Len returns how many grants are on the list.
func (l *List) Len() int { return len(l.of) }

// Get returns a grant on the list, nil when it isn't there.
func (l *List) Get(id protocol.GrantID) *jws.Grant { return l.of[id].Grant }

// All yields the grants in no order. Those that were yielded may be dropped.
func (l *List) All() iter.Seq2[protocol.GrantID, Presented] { return maps.All(l.of) }

// Add puts g on the list. A person who has all that one may have loses the one
// that ends first, but for keep; where the list is full, whoever has most does.
// It reports false when g finds no place, since everybody has as few.
func (l *List) Add(g *jws.Grant, handle uint64, keep *jws.Grant) bool {
	if l.of == nil {
		l.of, l.people = map[protocol.GrantID]Presented{}, map[protocol.UserID]int{}
	}
	if _, known := l.of[g.ID]; !known {
		switch {
		case l.people[g.Subject] >= protocol.MaxPersonGrants:
			l.giveWay(g.Subject, keep)
		case len(l.of) >= Max:
			most := g.Subject
			for user, n := range l.people {
				if n > l.people[most] {
					most = user
				}
			}
			if l.people[most] <= l.people[g.Subject]+1 {
				return false
			}
			l.giveWay(most, keep)
		}
		l.people[g.Subject]++
	}
	l.of[g.ID] = Presented{g, handle}
	return true
}

// giveWay drops the grant of a person that ends first, but for keep.
func (l *List) giveWay(user protocol.UserID, keep *jws.Grant) {
	var first *jws.Grant
	for _, p := range l.of {
		if p.Subject == user && (keep == nil || p.ID != keep.ID) && (first == nil || p.ExpiresAt < first.ExpiresAt) {
			first = p.Grant
		}
	}
	if first != nil {
		l.Drop(first.ID)
	}
}

// Drop takes a grant off the list.
func (l *List) Drop(id protocol.GrantID) {
	p, known := l.of[id]
	if !known {
		return
	}
	delete(l.of, id)
	if l.people[p.Subject]--; l.people[p.Subject] == 0 {
		delete(l.people, p.Subject)
	}
}

// Expire drops what is over at now.
func (l *List) Expire(now time.Time) {
	for id, p := range l.of {
		if Over(p.Grant, now) {
			l.Drop(id)
		}
	}
}

// Bare reports whether there is no grant any more.
func (l *List) Bare() bool { return l.of != nil && len(l.of) == 0 }
