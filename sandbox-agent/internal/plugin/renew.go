package plugin

import (
	"net/http"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// A handle names an open socket: by what its relay calls it, which alone knows, for
// its user in its session.
type handle struct {
	user    protocol.UserID
	session protocol.SessionID
	id      string
}

// lives are those of the open sockets that can go on under a newer grant.
type lives struct {
	mu sync.Mutex
	of map[handle]route.Life // guarded by mu
}

// handleOf returns the handle of r's socket, which comes under a grant.
func handleOf(r *http.Request, session protocol.SessionID, id string) handle {
	return handle{route.GrantOf(r).Subject, session, id}
}

// add notes a socket until it is forgotten. One without a life, or with a name that
// is taken, goes with its grant.
func (l *lives) add(h handle, life route.Life) (forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.of[h]; taken || life == nil || !protocol.ValidID(h.id) {
		return func() {}
	}
	if l.of == nil {
		l.of = map[handle]route.Life{}
	}
	l.of[h] = life
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.of, h)
	}
}

func (l *lives) find(h handle) (route.Life, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	life, ok := l.of[h]
	return life, ok
}

// renew is PUT /sessions/{sid}/plugin-sockets/{handle}: an open socket goes on under
// the grant of the request, which is of the same user.
func (l *lives) renew(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	life, ok := l.find(handleOf(r, session, r.PathValue("handle")))
	if !ok {
		return protocol.Errorf(protocol.KindNotFound, "there is no such socket")
	}
	if err := life.Renew(route.GrantOf(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
