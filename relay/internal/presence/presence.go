// Package presence tracks who watches something, and limits how often watchers
// are told. It knows no clock.
package presence

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Interval is the least time between two presence messages.
const Interval = time.Second

// perSocket makes it longer where there are many: all of them together are told a
// thousand times a second at most, so that who comes costs the others nothing that
// grows with their number.
const perSocket = time.Millisecond

// People are those who watch. The zero value is nobody. It is not safe for
// concurrent use.
type People struct {
	people  []*person // by name
	of      map[protocol.UserID]*person
	sockets int    // of all
	version uint64 // of people; every change raises it
	told    uint64 // the last broadcast version
	sent    time.Time

	encoded []byte // a buffer, of Encoded
	current uint64 // the version in it
}

// A person watches with one or more sockets.
type person struct {
	user        protocol.UserID
	name        string
	sockets     int
	controllers int // sockets whose grants allow to have control

	json []byte // what a message says of them; nil: not known
}

func (p *person) compare(other *person) int {
	return cmp.Or(cmp.Compare(p.name, other.name), cmp.Compare(p.user, other.user))
}

// count adds n sockets.
func (p *person) count(n int, control bool) {
	p.sockets += n
	if control {
		p.controllers += n
	}
	p.json = nil
}

// present returns what viewers are told of the person.
func (p *person) present() protocol.PresentViewer {
	return protocol.PresentViewer{UserID: p.user, Name: p.name, Sockets: p.sockets, CanControl: p.controllers > 0}
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
	p.sockets++
	who.count(1, control)
}

// Remove takes back what Add said.
func (p *People) Remove(user protocol.UserID, control bool) {
	p.version++
	p.sockets--
	who := p.of[user]
	who.count(-1, control)
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
	interval := max(Interval, time.Duration(p.sockets)*perSocket)
	return interval - now.Sub(p.sent), p.version != p.told
}

// Told notes that Message is sent to everybody at now.
func (p *People) Told(now time.Time) { p.told, p.sent = p.version, now }

// named returns those that a message names.
func (p *People) named() []*person { return p.people[:min(len(p.people), protocol.MaxPresenceViewers)] }

// Message names the first of the people.
func (p *People) Message() protocol.Presence {
	named := p.named()
	list := make([]protocol.PresentViewer, 0, len(named))
	for _, who := range named {
		list = append(list, who.present())
	}
	return protocol.Presence{Count: len(p.people), Viewers: list}
}

// Encoded returns what [protocol.EncodeServerMessage] makes of Message, until the
// next change. Only people who have changed are encoded: everybody who comes is told
// of all the others.
func (p *People) Encoded() []byte {
	if len(p.encoded) == 0 || p.current != p.version {
		p.encoded, p.current = p.appendTo(p.encoded[:0]), p.version
	}
	return p.encoded
}

func (p *People) appendTo(b []byte) []byte {
	b = append(b, `{"type":"`+protocol.ServerPresence+`","count":`...)
	b = strconv.AppendInt(b, int64(len(p.people)), 10)
	b = append(b, `,"viewers":[`...)
	for i, who := range p.named() {
		if i > 0 {
			b = append(b, ',')
		}
		b = who.append(b)
	}
	return append(b, "]}"...)
}

func (p *person) append(b []byte) []byte {
	if p.json == nil {
		var err error
		if p.json, err = json.Marshal(p.present()); err != nil {
			panic(fmt.Sprintf("presence: %v", err)) // a plain struct
		}
	}
	return append(b, p.json...)
}
