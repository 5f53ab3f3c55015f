// Package lineup decides which message of the side panel's tabs runs, which ones
// wait for it, and which are refused (seed 000). It knows no clock and runs
// nothing.
package lineup

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// MaxWaiting bounds the messages that wait in one tab.
	MaxWaiting = 5
	// HungAfter is how long a run takes before its tab counts as hung.
	HungAfter = 300 * time.Second
)

// States of a tab, as the panel knows them.
const (
	Idle       = "idle"
	Processing = "processing"
	Hung       = "hung"
)

// ErrFull refuses a message, in the words of the seed.
var ErrFull = protocol.Errorf(protocol.KindTooMany, "Queue full (max %d)", MaxWaiting)

// A Tab names one tab of a browser.
type Tab int64

// A Lineup is the tabs of one panel. Its zero value has none. It is not safe for
// concurrent use.
type Lineup[M any] struct {
	tabs map[Tab]*line[M]
}

// A line is of a tab in which something runs: without that nothing waits.
type line[M any] struct {
	since   time.Time
	waiting []M
}

// Accept takes a message: it runs now, or waits at a position, counted from 1.
// It fails with [ErrFull].
func (l *Lineup[M]) Accept(tab Tab, m M, now time.Time) (position int, err error) {
	t := l.tabs[tab]
	switch {
	case t == nil:
		if l.tabs == nil {
			l.tabs = map[Tab]*line[M]{}
		}
		l.tabs[tab] = &line[M]{since: now}
		return 0, nil
	case len(t.waiting) >= MaxWaiting:
		return 0, ErrFull
	}
	t.waiting = append(t.waiting, m)
	return len(t.waiting), nil
}

// Taken notes that something else runs in a tab. It reports whether nothing did.
func (l *Lineup[M]) Taken(tab Tab, now time.Time) bool {
	var none M
	if l.tabs[tab] != nil {
		return false
	}
	_, err := l.Accept(tab, none, now)
	return err == nil
}

// Over notes that what runs in a tab is over. The message that waits longest runs
// next, if there is one.
func (l *Lineup[M]) Over(tab Tab, now time.Time) (next M, runs bool) {
	t := l.tabs[tab]
	if t == nil {
		return next, false
	}
	if len(t.waiting) == 0 {
		delete(l.tabs, tab)
		return next, false
	}
	next, t.since = t.waiting[0], now
	t.waiting = slices.Delete(t.waiting, 0, 1)
	return next, true
}

// Stop empties a tab's line, and reports whether something runs, which is to be
// stopped and is over when [Lineup.Over] says so.
func (l *Lineup[M]) Stop(tab Tab) (runs bool, dropped []M) {
	t := l.tabs[tab]
	if t == nil {
		return false, nil
	}
	dropped, t.waiting = t.waiting, nil
	return true, dropped
}

// Dismiss takes one message out of a tab's line, counted from 0.
func (l *Lineup[M]) Dismiss(tab Tab, index int) (m M, ok bool) {
	t := l.tabs[tab]
	if t == nil || index < 0 || index >= len(t.waiting) {
		return m, false
	}
	m = t.waiting[index]
	t.waiting = slices.Delete(t.waiting, index, index+1)
	return m, true
}

// A Status is how a tab stands.
type Status[M any] struct {
	State   string
	Since   time.Time // of what runs; zero: nothing does
	Waiting []M       // a copy, the longest first
}

// Status returns how a tab stands.
func (l *Lineup[M]) Status(tab Tab, now time.Time) Status[M] {
	t := l.tabs[tab]
	if t == nil {
		return Status[M]{State: Idle}
	}
	s := Status[M]{State: Processing, Since: t.since, Waiting: slices.Clone(t.waiting)}
	if now.Sub(t.since) >= HungAfter {
		s.State = Hung
	}
	return s
}

// Busy returns the tabs in which something runs, in their order.
func (l *Lineup[M]) Busy() (busy []Tab) {
	for tab := range l.tabs {
		busy = append(busy, tab)
	}
	slices.Sort(busy)
	return busy
}
