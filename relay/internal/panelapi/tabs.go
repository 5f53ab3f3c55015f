package panelapi

import (
	"context"
	"sync"
	"time"
)

// tabInterval is the least time between two tabs that the sandbox is told of: each
// is a command that is signed.
const tabInterval = 500 * time.Millisecond

// A teller is who tells of tabs.
type teller interface {
	tell(ctx context.Context, now tab)
	// begin runs fn, unless there is nothing more to begin.
	begin(fn func()) bool
	// skipped counts a tab that nobody was told of.
	skipped()
}

// tabs tell the sandbox which tab a panel's person looks at: the latest, one at a
// time.
type tabs struct {
	// Static after construction.
	ctx context.Context
	by  teller

	mu sync.Mutex
	// Guarded by mu.
	next    *tab
	open    bool // the terminal is there
	running bool
}

// show notes the tab that is shown now.
func (t *tabs) show(now tab) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		t.by.skipped()
	}
	t.next = &now
	t.start()
}

// opened says that there is a terminal.
func (t *tabs) opened() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = true
	t.start()
}

// start has what waits told. The caller holds mu.
func (t *tabs) start() {
	if t.open && !t.running && t.next != nil {
		t.running = t.by.begin(t.run)
	}
}

// run tells until nothing waits, or the socket is over.
func (t *tabs) run() {
	for {
		t.mu.Lock()
		now := t.next
		t.next = nil
		if now == nil || t.ctx.Err() != nil {
			t.running = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		t.by.tell(t.ctx, *now)
		select {
		case <-t.ctx.Done():
		case <-time.After(tabInterval):
		}
	}
}
