package plugin

import (
	"net"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

// Ports tell whose the ports of this machine are.
type Ports interface {
	// Owns reports whether the agent itself listens on a port.
	Owns(port int) bool
	// Listens fails unless a program of a user listens on a port: with kind
	// not_found when nobody does, and forbidden when somebody else does. Uid −1
	// stands for the agent's own user.
	Listens(uid, port int) error
	// Serves fails as Listens does unless a connection that was just made leads to
	// a program of the user.
	Serves(uid int, conn net.Conn) error
}

// Terminals are the sandbox's.
type Terminals interface {
	// UID returns the user of a terminal; false when there is no such terminal.
	UID(session protocol.SessionID, pty protocol.PTYID) (int, bool)
	// NoteList tells those who watch the session's terminals that it has other plugins.
	NoteList(session protocol.SessionID)
}

// A registry knows which terminal has which name, and looks at ports.
type registry struct {
	// Static after construction.
	ports     Ports
	terminals Terminals

	mu    sync.Mutex
	names names // guarded by mu
}

// register gives a port of a terminal's program a name: see [Plugins.Register].
func (r *registry) register(session protocol.SessionID, pty protocol.PTYID, offer pluginsocket.Offer) (info pluginsocket.Info, err error) {
	switch {
	case !pluginsocket.ValidName(offer.Name):
		return info, protocol.Errorf(protocol.KindInvalid, "a plugin's name is 1 to %d letters, digits, _ or -", pluginsocket.MaxName)
	case offer.Port < 1 || offer.Port > 65535:
		return info, protocol.Errorf(protocol.KindInvalid, "a port is a number from 1 to 65535")
	case r.ports.Owns(offer.Port):
		return info, protocol.Errorf(protocol.KindForbidden, "port %d is the sandbox agent's own", offer.Port)
	}
	uid, ok := r.terminals.UID(session, pty)
	if !ok {
		return info, protocol.Errorf(protocol.KindNotFound, "there is no such terminal")
	}
	if err := r.ports.Listens(uid, offer.Port); err != nil {
		return info, err
	}
	if err := r.claim(session, offer.Name, &entry{pty, uid, offer.Port}); err != nil {
		return info, err
	}
	r.terminals.NoteList(session)
	return pluginsocket.Info{Name: offer.Name, PTYID: pty, Port: offer.Port}, nil
}

// claim gives e a name, unless the port of another terminal that has it is open.
// Whether it is, is looked at without the lock, so it is looked at again when
// somebody else was quicker.
func (r *registry) claim(session protocol.SessionID, name string, e *entry) error {
	for {
		r.mu.Lock()
		had, err := r.names.claim(session, name, e)
		r.mu.Unlock()
		switch {
		case err != nil && r.sweep(session):
			continue // there is room now
		case err != nil || had == nil:
			return err
		case r.running(had):
			return protocol.Errorf(protocol.KindConflict, "another terminal of the session has the plugin %q", name)
		}
		r.forget(session, name, had)
	}
}

// running reports whether the port of e is open, and its terminal's.
func (r *registry) running(e *entry) bool { return r.ports.Listens(e.uid, e.port) == nil }

// forget takes name from e, if e has it.
func (r *registry) forget(session protocol.SessionID, name string, e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.drop(session, name, e)
}

// sweep forgets the plugins of a session whose port is closed. It reports whether
// there were any.
func (r *registry) sweep(session protocol.SessionID) (any bool) {
	r.mu.Lock()
	all := r.names.of(session)
	r.mu.Unlock()
	for name, e := range all {
		if !r.running(e) {
			r.forget(session, name, e)
			any = true
		}
	}
	return any
}

// list returns the plugins of a session that run, by name.
func (r *registry) list(session protocol.SessionID) pluginsocket.List {
	r.sweep(session)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names.list(session)
}

// find returns the plugin of a name, nil when none runs.
func (r *registry) find(session protocol.SessionID, name string) *entry {
	r.mu.Lock()
	e := r.names[session][name]
	r.mu.Unlock()
	if e != nil && !r.running(e) {
		r.forget(session, name, e)
		return nil
	}
	return e
}

// terminalEnded forgets what a terminal has registered.
func (r *registry) terminalEnded(session protocol.SessionID, pty protocol.PTYID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.ended(session, pty)
}

// sessionEnded forgets the plugins of a session.
func (r *registry) sessionEnded(session protocol.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, session)
}

// count returns how many plugins are registered.
func (r *registry) count() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.names {
		n += len(of)
	}
	return n
}
