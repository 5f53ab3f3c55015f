package arbiter

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// MaxGrants bounds the grants of a stream; those of one person
// protocol.MaxPersonGrants does.
const MaxGrants = 4096

// A grantList is the grants under which a stream is used. Its zero value is
// ready; Arbiter.mu guards it.
type grantList struct {
	of     map[protocol.GrantID]presented // nil: there never was one
	people map[protocol.UserID]int        // how many each has
}

// A presented grant is one on the list, with what the relay calls it.
type presented struct {
	*jws.Grant
	handle uint64
}

// add puts g on the list. A person who has all that one may have loses the one
// that ends first, but for keep; where the list is full, whoever has most does.
// It reports false when g finds no place, since everybody has as few.
func (l *grantList) add(g *jws.Grant, handle uint64, keep *jws.Grant) bool {
	if l.of == nil {
		l.of, l.people = map[protocol.GrantID]presented{}, map[protocol.UserID]int{}
	}
	if _, known := l.of[g.ID]; !known {
		switch {
		case l.people[g.Subject] >= protocol.MaxPersonGrants:
			l.giveWay(g.Subject, keep)
		case len(l.of) >= MaxGrants:
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
	l.of[g.ID] = presented{g, handle}
	return true
}

// giveWay drops the grant of a person that ends first, but for keep.
func (l *grantList) giveWay(user protocol.UserID, keep *jws.Grant) {
	var first *jws.Grant
	for _, p := range l.of {
		if p.Subject == user && (keep == nil || p.ID != keep.ID) && (first == nil || p.ExpiresAt < first.ExpiresAt) {
			first = p.Grant
		}
	}
	if first != nil {
		l.drop(first.ID)
	}
}

func (l *grantList) drop(id protocol.GrantID) {
	p, known := l.of[id]
	if !known {
		return
	}
	delete(l.of, id)
	if l.people[p.Subject]--; l.people[p.Subject] == 0 {
		delete(l.people, p.Subject)
	}
}

// expire drops what is over at now.
func (l *grantList) expire(now time.Time) {
	for id, p := range l.of {
		if over(p.Grant, now) {
			l.drop(id)
		}
	}
}

// bare reports whether there is no grant any more.
func (l *grantList) bare() bool { return l.of != nil && len(l.of) == 0 }
