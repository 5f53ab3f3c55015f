// Package roster says which tabs a session's browser has: their numbers, and which
// one is active. It knows no browser and no clock.
//
// A tab is itself for longer than its Chromium: when that ends its tabs are asleep,
// and whoever asks for one has it again, with nothing in it. A tab that was closed
// never comes back, and its number names no other one.
package roster

import (
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// Max bounds the open tabs of a session.
	Max = 8
	// maxAsleep bounds those that can be woken; of more the oldest is as good as
	// closed.
	maxAsleep = 32
	// MaxID bounds the number that a tab may be asked for by before there was one.
	MaxID = 9999
)

// A Want says which tab something is for.
type Want struct {
	Tab   int  // 0: the active one
	Bound bool // who asks is bound to the tab, which may never have been open
}

// A Roster is the tabs of one session. Its zero value has none. It is not safe for
// concurrent use.
type Roster struct {
	open   []int // in the order in which they were opened
	asleep []int // the one that sleeps longest is first
	active int   // open, or asleep, or 0
	last   int   // the highest number that there was
}

// ErrFull refuses another tab.
var ErrFull = protocol.Errorf(protocol.KindTooMany, "%d tabs are open already: close one (browser_tab_close)", Max)

// Open opens another tab. It fails with [ErrFull].
func (r *Roster) Open() (int, error) {
	if len(r.open) >= Max {
		return 0, ErrFull
	}
	r.last++
	r.begin(r.last)
	return r.last, nil
}

// begin lists a tab as open. Where the active one isn't open, it is the active one.
func (r *Roster) begin(tab int) {
	if !slices.Contains(r.open, r.active) {
		r.active = tab
	}
	r.open = append(r.open, tab)
}

// Get returns the tab that is wanted, which is open from now on. It fails with
// [ErrFull], and with KindNotFound for a tab that was closed or never open.
func (r *Roster) Get(w Want) (int, error) {
	tab := w.Tab
	if tab == 0 {
		tab = r.active
	}
	at := slices.Index(r.asleep, tab)
	switch {
	case tab == 0:
		return r.Open()
	case slices.Contains(r.open, tab):
		return tab, nil
	case r.Closed(tab):
		return 0, protocol.Errorf(protocol.KindNotFound, "tab %d is closed: browser_tabs lists those that are open", tab)
	case at < 0 && (!w.Bound || tab < 0 || tab > MaxID):
		return 0, protocol.Errorf(protocol.KindNotFound, "there is no tab %d: browser_tabs lists those that are open", tab)
	case len(r.open) >= Max:
		return 0, ErrFull
	}
	if at >= 0 {
		r.asleep = slices.Delete(r.asleep, at, at+1)
	}
	for id := tab - 1; id > r.last && len(r.asleep) < maxAsleep; id-- { // who is bound to those comes later
		r.asleep = slices.Insert(r.asleep, 0, id)
	}
	r.last = max(r.last, tab)
	r.begin(tab)
	return tab, nil
}

func (r *Roster) sleep(tab int) {
	r.asleep = append(r.asleep, tab)
	if over := len(r.asleep) - maxAsleep; over > 0 {
		r.asleep = slices.Delete(r.asleep, 0, over)
	}
}

// Close closes a tab for good; 0 is the active one. The one that was opened next
// before it is active if it was. It fails with KindNotFound for a tab that isn't
// open.
func (r *Roster) Close(tab int) (closed int, err error) {
	if tab == 0 {
		tab = r.active
	}
	at := slices.Index(r.open, tab)
	if at < 0 {
		return 0, notOpen(tab)
	}
	r.open = slices.Delete(r.open, at, at+1)
	if r.active == tab {
		r.active = 0
		if len(r.open) > 0 {
			r.active = r.open[max(0, at-1)]
		}
	}
	return tab, nil
}

// Switch makes an open tab the active one. It fails with KindNotFound for any other.
func (r *Roster) Switch(tab int) error {
	if !slices.Contains(r.open, tab) {
		return notOpen(tab)
	}
	r.active = tab
	return nil
}

func notOpen(tab int) error {
	if tab == 0 {
		return protocol.Errorf(protocol.KindNotFound, "no tab is open")
	}
	return protocol.Errorf(protocol.KindNotFound, "tab %d isn't open: browser_tabs lists those that are", tab)
}

// Sleep notes that the tabs' Chromium has ended.
func (r *Roster) Sleep() {
	for _, tab := range r.open {
		if tab != r.active {
			r.sleep(tab)
		}
	}
	if slices.Contains(r.open, r.active) {
		r.sleep(r.active) // the last to be forgotten
	}
	r.open = nil
}

// List returns the open tabs in the order in which they were opened.
func (r *Roster) List() []int { return slices.Clone(r.open) }

// Active returns the active tab; 0: there is none.
func (r *Roster) Active() int { return r.active }

// Next returns what the next tab is called, unless who asks for one is bound to it.
func (r *Roster) Next() int { return r.last + 1 }

// Closed reports whether there was such a tab, and never will be again.
func (r *Roster) Closed(tab int) bool {
	return tab > 0 && tab <= r.last && !slices.Contains(r.open, tab) && !slices.Contains(r.asleep, tab)
}
