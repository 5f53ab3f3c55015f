package hub

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// maxActive bounds the clients without a socket whose last act is remembered:
// the oldest one is dropped.
const maxActive = 64

// A size is a terminal's size. The zero value is none.
type size struct{ cols, rows int }

// A leading chooses which of a controller's sockets sets the terminal's size:
// the one whose client acted last, by a key or a click, otherwise the oldest.
// The sizes that the others ask for are kept until they lead. An act is
// remembered beyond its socket: a client that reconnects leads again, unless
// another has acted meanwhile. It is pure: its caller applies the sizes.
type leading struct {
	sockets map[protocol.UserID]map[turn.SocketID]*candidate // sockets that may have control
	acted   map[string]uint64                                // time of each client's last act, by clock
	clock   uint64

	controller protocol.UserID // at the last choice
	leader     turn.SocketID   // 0: nobody
	given      size            // the size given for the leader
	stale      bool            // the choice may have changed
}

// A candidate is a socket that may lead.
type candidate struct {
	user    protocol.UserID
	client  string
	follows bool // never leads: a panel beside something else
	asked   size
}

func newLeading() leading {
	return leading{sockets: map[protocol.UserID]map[turn.SocketID]*candidate{}, acted: map[string]uint64{}}
}

// add adds or changes a socket whose user may have control.
func (l *leading) add(id turn.SocketID, s candidate) {
	if l.sockets[s.user] == nil {
		l.sockets[s.user] = map[turn.SocketID]*candidate{}
	}
	if old := l.sockets[s.user][id]; old != nil {
		s.asked = old.asked
	}
	l.sockets[s.user][id] = &s
	l.changed(s.user)
}

// remove removes a socket, if present.
func (l *leading) remove(user protocol.UserID, id turn.SocketID) {
	if delete(l.sockets[user], id); len(l.sockets[user]) == 0 {
		delete(l.sockets, user)
	}
	l.changed(user)
}

func (l *leading) changed(user protocol.UserID) { l.stale = l.stale || user == l.controller }

// wants stores the size that a socket asks for.
func (l *leading) wants(user protocol.UserID, id turn.SocketID, want size) {
	if s := l.sockets[user][id]; s != nil && !s.follows {
		s.asked = want
		if id == l.leader {
			l.given = size{} // a repeated request is applied again
		}
		l.changed(user)
	}
}

// acts notes that somebody uses a socket's window: they typed, clicked, or
// asked for control there.
func (l *leading) acts(user protocol.UserID, id turn.SocketID) {
	s := l.sockets[user][id]
	if s == nil || s.follows {
		return
	}
	l.clock++
	l.acted[s.client] = l.clock
	if len(l.acted) > maxActive {
		l.forget()
	}
	l.changed(user)
}

// forget drops the client that acted longest ago. If it has a socket, it counts
// as never having acted.
func (l *leading) forget() {
	oldest := ""
	for client, at := range l.acted {
		if oldest == "" || at < l.acted[oldest] {
			oldest = client
		}
	}
	delete(l.acted, oldest)
}

// choose returns the socket that leads while controller has control, 0 for
// none, and the size to set, none if unchanged. fresh says that something may
// have changed.
func (l *leading) choose(controller protocol.UserID) (leader turn.SocketID, give size, fresh bool) {
	if !l.stale && controller == l.controller {
		return l.leader, size{}, false
	}
	l.stale, l.controller = false, controller
	for id, s := range l.sockets[controller] {
		if !s.follows && (leader == 0 || l.before(id, s, leader)) {
			leader = id
		}
	}
	if leader != l.leader {
		l.leader, l.given = leader, size{}
	}
	if s := l.sockets[controller][leader]; s != nil && s.asked != l.given {
		l.given, give = s.asked, s.asked
	}
	return leader, give, true
}

// before reports whether s takes precedence over another socket of its user.
func (l *leading) before(id turn.SocketID, s *candidate, other turn.SocketID) bool {
	mine, theirs := l.acted[s.client], l.acted[l.sockets[s.user][other].client]
	return mine > theirs || mine == theirs && id < other
}

// mayLead adds v to the possible leaders, or removes it.
func (h *Hub) mayLead(v *Viewer) {
	if h.audience.sees(v) && v.may(roster.Control) {
		h.leading.add(v.id, candidate{user: v.user, client: v.pacer, follows: v.follows})
		return
	}
	v.notLed = false
	h.leading.remove(v.user, v.id)
}

// lead sets the terminal's size to the leading socket's, if that is new, and
// tells the controller's sockets which one leads.
func (h *Hub) lead() {
	last, controller := h.leading.controller, h.state.Controller()
	leader, give, fresh := h.leading.choose(controller)
	if !fresh {
		return
	}
	h.typing.LedBy(leader)
	if last != controller {
		for id := range h.leading.sockets[last] {
			h.audience.viewers[id].notLed = false
		}
	}
	for id := range h.leading.sockets[controller] {
		h.audience.viewers[id].leads(id == leader)
	}
	cols, rows := h.feed.Size()
	given := h.resize.asked == nil && (h.resize.last == give || h.resize.last == size{}) && give == size{cols, rows}
	if _, ok := h.state.MayType(leader, h.state.Term()); ok && give != (size{}) && !given {
		h.resize.want(protocol.Resize{Term: h.state.Term(), Cols: give.cols, Rows: give.rows}) // tick sends it
	}
}

// leads tells a controller's viewer whether it leads, unless it knows. A viewer
// with control assumes that it does.
func (v *Viewer) leads(yes bool) {
	if v.greeted && v.notLed == yes {
		v.notLed = !yes
		v.outbox.Tell(protocol.SizeLed{Leads: yes})
	}
}
