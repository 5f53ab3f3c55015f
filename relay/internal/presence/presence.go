// Package presence tracks who watches something, and limits how often watchers
// are told. It knows no clock.
package presence

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Interval is the least time between two presence messages.
const Interval = time.Second

// People are those who watch. The zero value is nobody. It is not safe for
// concurrent use.
type People struct {
	people  []*person // by name
	of      map[protocol.UserID]*person
	version uint64 // of people; every change raises it
	told    uint64 // the last broadcast version
	sent    time.Time
}

// A person watches with one or more sockets.
type person struct {
	user        protocol.UserID
	name        string
	sockets     int
	controllers int // sockets whose grants allow to have control
}

func (p *person) compare(other *person) int {
	return cmp.Or(cmp.Compare(p.name, other.name), cmp.Compare(p.user, other.user))
}

// find returns where who is among the people, or belongs.
func (p *People) find(who *person) int {
	i, _ := slices.BinarySearchFunc(p.people, who, (*person).compare)
	return i
}

// Add counts a socket of a user, whose grant may allow control.
func (p *People) Add(user protocol.UserID, name string, control bool) {
	p.version++
	who := p.of[user]
	if who == nil {
		who = &person{user: user, name: name}
		if p.of == nil {
			p.of = map[protocol.UserID]*person{}
		}
		p.of[user] = who
		p.people = slices.Insert(p.people, p.find(who), who)
	}
	who.sockets++
	if control {
		who.controllers++
	}
}

// Remove takes back what Add said.
func (p *People) Remove(user protocol.UserID, control bool) {
	p.version++
	who := p.of[user]
	who.sockets--
	if control {
		who.controllers--
	}
	if who.sockets == 0 {
		delete(p.of, user)
		i := p.find(who)
		p.people = slices.Delete(p.people, i, i+1)
	}
}

// Change notes that a socket of a user, who could have control or not, now can or
// not.
func (p *People) Change(user protocol.UserID, name string, could, can bool) {
	if can != could {
		p.Remove(user, could)
		p.Add(user, name, can)
	}
}

// Version is raised by every change.
func (p *People) Version() uint64 { return p.version }

// DueIn returns how long after now the next message is, if one is needed.
func (p *People) DueIn(now time.Time) (wait time.Duration, needed bool) {
	return Interval - now.Sub(p.sent), p.version != p.told
}

// Told notes that Message is sent to everybody at now.
func (p *People) Told(now time.Time) { p.told, p.sent = p.version, now }

// Message names the first of the people.
func (p *People) Message() protocol.Presence {
	named := p.people[:min(len(p.people), protocol.MaxPresenceViewers)]
	list := make([]protocol.PresentViewer, 0, len(named))
	for _, who := range named {
		list = append(list, protocol.PresentViewer{
			UserID: who.user, Name: who.name, Sockets: who.sockets, CanControl: who.controllers > 0,
		})
	}
	return protocol.Presence{Count: len(p.people), Viewers: list}
}
