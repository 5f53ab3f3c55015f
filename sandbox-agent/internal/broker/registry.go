package broker

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// placeholder replaces a secret in a variable, followed by its name.
const placeholder = "[BROKERED]"

// A scope is a session, or one of its terminals if pty isn't empty.
type scope struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

// A terminal is one that may use the broker.
type terminal struct {
	// Static after construction.
	scope
	uid        int
	capability string
	ctx        context.Context // ends with the terminal
	end        context.CancelFunc

	// Guarded by registry.mu.
	active int // requests in progress
}

// registry knows the terminals and their secrets.
type registry struct {
	// Static after construction.
	base string // URL of the server, without a path

	mu sync.Mutex
	// Guarded by mu.
	closed       bool
	terminals    map[scope]*terminal
	capabilities map[[sha256.Size]byte]*terminal // by hash, so that lookups leak no timing
	secrets      map[scope]map[string]string
	domains      map[protocol.SessionID]map[domainKey]*rule
}

func newRegistry(base string) *registry {
	return &registry{
		base: base, terminals: make(map[scope]*terminal), capabilities: make(map[[sha256.Size]byte]*terminal),
		secrets: make(map[scope]map[string]string), domains: make(map[protocol.SessionID]map[domainKey]*rule),
	}
}

// Environ returns the variables with which a terminal, whose processes run as
// uid, uses the protected secrets called names: a placeholder for each, and the
// broker's URLs. It gives the terminal a capability if it has none.
func (r *registry) Environ(session protocol.SessionID, pty protocol.PTYID, uid int, names []string) (map[string]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, protocol.Errorf(protocol.KindUnavailable, "the broker is closed")
	}
	env := make(map[string]string)
	if len(names) == 0 {
		return env, nil
	}
	t, err := r.terminal(scope{session, pty}, uid)
	if err != nil {
		return nil, err
	}
	base := r.base + "/broker/" + t.capability + "/"
	known := make(map[string]bool)
	for _, p := range providers {
		for _, name := range p.keys {
			if !slices.Contains(names, name) {
				continue
			}
			known[name] = true
			for _, url := range p.urls {
				env[url] = base + p.name
			}
		}
	}
	for _, name := range names {
		env[name] = placeholder + name
		if !known[name] {
			env[name+"_BROKER"] = base + custom + "/" + name
		}
	}
	return env, nil
}

// terminal returns the terminal of at, which it makes when there is none. r.mu
// is held.
func (r *registry) terminal(at scope, uid int) (*terminal, error) {
	if t, ok := r.terminals[at]; ok {
		if t.uid != uid {
			return nil, protocol.Errorf(protocol.KindConflict, "the terminal has a capability as another user")
		}
		return t, nil
	}
	if len(r.terminals) >= 2*protocol.MaxPTYs {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many terminals use the broker")
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &terminal{scope: at, uid: uid, capability: strings.ToLower(rand.Text()), ctx: ctx, end: cancel}
	r.terminals[at] = t
	r.capabilities[sha256.Sum256([]byte(t.capability))] = t
	return t, nil
}

// find returns the terminal with a capability.
func (r *registry) find(capability string) (*terminal, bool) {
	hash := sha256.Sum256([]byte(capability))
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.capabilities[hash]
	return t, ok
}

// enter counts a request of t, false if it has too many.
func (r *registry) enter(t *terminal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.active >= MaxRequests {
		return false
	}
	t.active++
	return true
}

func (r *registry) leave(t *terminal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.active--
}

// PutSecret stores the value of a variable for a session or, if pty isn't
// empty, for one terminal, for which it overrides the session's.
func (r *registry) PutSecret(session protocol.SessionID, pty protocol.PTYID, name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := scope{session, pty}
	if r.closed {
		return
	}
	if r.secrets[at] == nil {
		r.secrets[at] = make(map[string]string)
	}
	r.secrets[at][name] = strings.TrimSpace(value)
}

// RemoveSecret removes a value. Requests that already carry it continue.
func (r *registry) RemoveSecret(session protocol.SessionID, pty protocol.PTYID, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.secrets[scope{session, pty}], name)
}

// secret returns the first of names that t may use.
func (r *registry) secret(t *terminal, names ...string) (name, value string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range []scope{t.scope, {session: t.session}} {
		for _, name := range names {
			if value, ok := r.secrets[at][name]; ok {
				return name, value, true
			}
		}
	}
	return "", "", false
}

// EndTerminal revokes a terminal's capability, ends its requests and removes
// its own secrets.
func (r *registry) EndTerminal(session protocol.SessionID, pty protocol.PTYID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endTerminal(scope{session, pty})
	delete(r.secrets, scope{session, pty})
}

// endTerminal removes the terminal at. The caller holds mu.
func (r *registry) endTerminal(at scope) {
	t, ok := r.terminals[at]
	if !ok {
		return
	}
	t.end()
	delete(r.terminals, at)
	delete(r.capabilities, sha256.Sum256([]byte(t.capability)))
}

// EndSession ends all terminals of a session and removes its secrets and
// approved domains.
func (r *registry) EndSession(session protocol.SessionID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.terminals {
		if at.session == session {
			r.endTerminal(at)
		}
	}
	for at := range r.secrets {
		if at.session == session {
			delete(r.secrets, at)
		}
	}
	delete(r.domains, session)
}

func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for at := range r.terminals {
		r.endTerminal(at)
	}
	clear(r.secrets)
	clear(r.domains)
}
