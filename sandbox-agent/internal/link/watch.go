package link

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// watchLinger is how long a terminal counts as watched after the last stream to
// it has ended. A relay's death ends streams, and whoever watched comes back to
// another relay, which had better be alive.
const watchLinger = protocol.ControlGrace + 5*time.Second

// A watch tells all tunnels of the sandbox whether somebody watches a terminal or
// its approvals,
// through whichever of them: then a dead relay has to be noticed soon, also one
// that is only the standby. Its zero value is ready.
type watch struct {
	mu sync.Mutex
	// Guarded by mu.
	tunnels map[*tunnelWatch]struct{}
	streams int         // terminal streams that are open
	told    bool        // what the tunnels know
	linger  *time.Timer // runs while nobody watches and the tunnels believe otherwise
}

// A tunnelWatch is one tunnel.
type tunnelWatch struct {
	set func(watched bool) // called with mu held
}

// join has a tunnel told until leave is called.
func (w *watch) join(set func(watched bool)) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &tunnelWatch{set}
	if w.tunnels == nil {
		w.tunnels = map[*tunnelWatch]struct{}{}
	}
	w.tunnels[t] = struct{}{}
	if w.told {
		set(true)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.tunnels, t)
	}
}

// begin notes that a terminal stream was opened.
func (w *watch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams++
	if w.linger != nil {
		w.linger.Stop()
		w.linger = nil
	}
	w.tell(true)
}

// end notes that a terminal stream has ended.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams--; w.streams > 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(watchLinger, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.linger == timer {
			w.linger = nil
			w.tell(false)
		}
	})
	w.linger = timer
}

// tell tells the tunnels what they don't know yet. It is called with mu held.
func (w *watch) tell(watched bool) {
	if w.told == watched {
		return
	}
	w.told = watched
	for t := range w.tunnels {
		t.set(watched)
	}
}
