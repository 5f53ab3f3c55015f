package lease

import "container/list"

// A Window tracks each client's last input, so that repeated input is not
// written twice. It keeps the most recently active clients; the input of a
// forgotten one counts as new. It is not safe for concurrent use.
type Window struct {
	most    int
	clients map[string]*list.Element // of active, with a *progress
	active  list.List                // the most recent first
}

type progress struct {
	client string
	last   uint64
}

// NewWindow returns a window that remembers maxClients clients, at least one.
func NewWindow(maxClients int) *Window {
	return &Window{most: max(maxClients, 1), clients: map[string]*list.Element{}}
}

// Accept reports whether the input seq of client is new, that is greater than
// every accepted one, and notes it if so. Numbers may be skipped.
func (w *Window) Accept(client string, seq uint64) (fresh bool) {
	if e, known := w.clients[client]; known {
		p := e.Value.(*progress)
		w.active.MoveToFront(e)
		if seq <= p.last {
			return false
		}
		p.last = seq
		return true
	}
	if len(w.clients) == w.most {
		oldest := w.active.Back()
		delete(w.clients, w.active.Remove(oldest).(*progress).client)
	}
	w.clients[client] = w.active.PushFront(&progress{client, seq})
	return true
}

// Last returns the greatest number accepted from client, if there is one.
func (w *Window) Last(client string) (uint64, bool) {
	e, known := w.clients[client]
	if !known {
		return 0, false
	}
	return e.Value.(*progress).last, true
}
