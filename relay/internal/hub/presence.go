package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// presenceInterval is the least time between two presence messages.
const presenceInterval = time.Second

// presence tracks who watches, and limits how often viewers are told. Owned by
// run.
type presence struct {
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
	controllers int // sockets whose grants carry "control"
}

func (p *person) compare(other *person) int {
	return cmp.Or(cmp.Compare(p.name, other.name), cmp.Compare(p.user, other.user))
}

// find returns where who is among the people, or belongs.
func (p *presence) find(who *person) int {
	i, _ := slices.BinarySearchFunc(p.people, who, (*person).compare)
	return i
}

// add counts a viewer, whose grant may carry "control".
func (p *presence) add(v *Viewer, control bool) {
	p.version++
	who := p.of[v.user]
	if who == nil {
		who = &person{user: v.user, name: v.name}
		if p.of == nil {
			p.of = map[protocol.UserID]*person{}
		}
		p.of[v.user] = who
		p.people = slices.Insert(p.people, p.find(who), who)
	}
	who.sockets++
	if control {
		who.controllers++
	}
}

// remove takes back what add said.
func (p *presence) remove(v *Viewer, control bool) {
	p.version++
	who := p.of[v.user]
	who.sockets--
	if control {
		who.controllers--
	}
	if who.sockets == 0 {
		delete(p.of, v.user)
		i := p.find(who)
		p.people = slices.Delete(p.people, i, i+1)
	}
}

// change notes that v, who could have control or not, now can or not.
func (p *presence) change(v *Viewer, could, can bool) {
	if can != could {
		p.remove(v, could)
		p.add(v, can)
	}
}

// dueIn returns how long after now the next broadcast is, if one is needed.
func (p *presence) dueIn(now time.Time) (wait time.Duration, needed bool) {
	return presenceInterval - now.Sub(p.sent), p.version != p.told
}

// message names the first of the people.
func (p *presence) message() protocol.Presence {
	named := p.people[:min(len(p.people), protocol.MaxPresenceViewers)]
	list := make([]protocol.PresentViewer, 0, len(named))
	for _, who := range named {
		list = append(list, protocol.PresentViewer{
			UserID: who.user, Name: who.name, Sockets: who.sockets, CanControl: who.controllers > 0,
		})
	}
	return protocol.Presence{Count: len(p.people), Viewers: list}
}
