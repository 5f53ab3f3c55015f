package sidebar

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/ring"
)

// A board is what the tabs of a panel have in common.
type board struct {
	// Static after construction.
	o       *Options
	counts  *counts
	session protocol.SessionID
	keeper  keeper
	closing chan struct{}  // closed when the panel ends
	wait    sync.WaitGroup // goroutines of tabs

	mu sync.Mutex
	// Guarded by mu.
	lineup  *lineup.Lineup[message]
	entries *ring.Ring[Entry]
	now     chapter
	changed chan struct{} // closed when something has changed
	closed  bool
}

// A keeper stores the panel.
type keeper interface {
	// save is called with mu held.
	save()
}

// A message is one that somebody has sent.
type message struct {
	command *jws.Command
	body    *op.SidebarSend
}

// add adds an entry of a tab. The caller holds mu.
func (b *board) add(tab lineup.Tab, e Entry) {
	e.TabID, e.Time = tab, stamp(time.Now())
	b.entries.Add(e.size(), func(number uint64) Entry {
		e.ID = number
		return e
	})
	b.now.ChatLines++
	b.now.LastActiveAt = e.Time
	b.tell()
}

// tell wakes whoever waits for a change. The caller holds mu.
func (b *board) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}
