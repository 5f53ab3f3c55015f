package panelapi

import (
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A present is an open socket.
type present interface {
	// renew has it go on under a newer grant of its person and session.
	renew(grant *jws.Grant, bearer string)
	// restarted ends it, as its terminal is about to.
	restarted()
	// leave ends it, as the relay goes away.
	leave()
}

// A place is where a person's sockets are.
type place struct {
	user    protocol.UserID
	session protocol.SessionID
}

// here are the open sockets of a relay. The zero value is ready.
type here struct {
	mu sync.Mutex
	of map[place]map[present]protocol.PTYID // guarded by mu
}

// enter adds a socket to a terminal until left.
func (h *here) enter(at place, pty protocol.PTYID, s present) (left func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[place]map[present]protocol.PTYID{}
	}
	if h.of[at] == nil {
		h.of[at] = map[present]protocol.PTYID{}
	}
	h.of[at][s] = pty
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.of[at], s); len(h.of[at]) == 0 {
			delete(h.of, at)
		}
	}
}

// at returns the sockets of a person, with their terminals.
func (h *here) at(at place) map[present]protocol.PTYID {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[present]protocol.PTYID, len(h.of[at]))
	for s, pty := range h.of[at] {
		all[s] = pty
	}
	return all
}

// renew renews the sockets of a grant's person in its session.
func (h *here) renew(grant *jws.Grant, bearer string) {
	for s := range h.at(place{grant.Subject, grant.Session}) {
		s.renew(grant, bearer)
	}
}

// leave ends all sockets.
func (h *here) leave() {
	h.mu.Lock()
	var all []present
	for _, some := range h.of {
		for s := range some {
			all = append(all, s)
		}
	}
	h.mu.Unlock()
	for _, s := range all {
		s.leave()
	}
}
