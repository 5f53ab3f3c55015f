package plugin

import (
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

// maxNames bounds the plugins of a session. Beyond it those whose port is closed
// give way, or the answer is 429.
const maxNames = 64

// An entry is a registered port. It never changes.
type entry struct {
	pty  protocol.PTYID
	uid  int // −1: the agent's own
	port int
}

// names are the registered plugins, by session and name.
type names map[protocol.SessionID]map[string]*entry

// claim gives e a name. It returns who else has it; a terminal may move its own to
// another port.
func (n names) claim(session protocol.SessionID, name string, e *entry) (had *entry, err error) {
	of := n[session]
	had, taken := of[name]
	switch {
	case taken && had.pty != e.pty:
		return had, nil
	case !taken && len(of) >= maxNames:
		return nil, protocol.Errorf(protocol.KindTooMany, "the session has %d plugins", len(of))
	case of == nil:
		of = map[string]*entry{}
		n[session] = of
	}
	of[name] = e
	return nil, nil
}

// drop takes name from e, if e has it.
func (n names) drop(session protocol.SessionID, name string, e *entry) {
	of := n[session]
	if of[name] == e {
		delete(of, name)
	}
	if len(of) == 0 {
		delete(n, session)
	}
}

// ended drops what a terminal has registered.
func (n names) ended(session protocol.SessionID, pty protocol.PTYID) {
	for name, e := range n.of(session) {
		if e.pty == pty {
			n.drop(session, name, e)
		}
	}
}

// of returns the plugins of a session.
func (n names) of(session protocol.SessionID) map[string]*entry { return maps.Clone(n[session]) }

// list returns the plugins of a session by name.
func (n names) list(session protocol.SessionID) pluginsocket.List {
	list := pluginsocket.List{Plugins: []pluginsocket.Info{}}
	for name, e := range n[session] {
		list.Plugins = append(list.Plugins, pluginsocket.Info{Name: name, PTYID: e.pty, Port: e.port})
	}
	slices.SortFunc(list.Plugins, func(a, b pluginsocket.Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}
