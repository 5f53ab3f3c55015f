package sidebar

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/places"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/ring"
)

const (
	// maxEntries and maxEntryBytes bound the entries of a panel that are held.
	maxEntries    = 2000
	maxEntryBytes = 4 << 20
	// maxPlaces bounds what is stored about them, and about those held no longer.
	maxPlaces = 2 * maxEntries
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
	lineup   *lineup.Lineup[message]
	entries  *ring.Ring[Entry]
	places   *places.File // of entries
	now      chapter
	changed  chan struct{} // closed when something has changed
	unplaced bool          // it was said that entries won't outlive the agent
	closed   bool
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
	now := time.Now()
	e.TabID, e.Time, e.at = tab, stamp(now), now.UnixMilli()
	e = b.entries.Add(e.size(), func(number uint64) Entry {
		e.ID = number
		return e
	})
	if b.places.Len() >= maxPlaces {
		b.place()
	} else if err := b.places.Add(e.place()); err != nil && !b.unplaced {
		b.unplaced = true
		b.o.Log.Warn("a side panel's entries won't outlive the agent", "session", b.session, "err", err)
	}
	b.now.ChatLines++
	b.now.LastActiveAt = e.Time
	b.tell()
}

// place stores the places of the entries that are held. The caller holds mu.
func (b *board) place() {
	held := b.entries.From(0)
	all := make([]places.Place, 0, len(held))
	for _, e := range held {
		all = append(all, e.place())
	}
	if err := b.places.Replace(all); err != nil {
		b.o.Log.Warn("a side panel's entries are not stored", "session", b.session, "err", err)
	}
}

// tell wakes whoever waits for a change. The caller holds mu.
func (b *board) tell() {
	close(b.changed)
	b.changed = make(chan struct{})
}
