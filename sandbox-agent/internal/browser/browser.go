package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// States of op.BrowserStatus.
const (
	stateStopped  = "stopped"
	stateStarting = "starting"
	stateRunning  = "running"
)

// A Browser keeps the Chromiums of all sessions. It is safe for concurrent use.
type Browser struct {
	// Static after construction.
	opts   Options
	own    *ports
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wait   sync.WaitGroup // goroutines besides calls

	mu sync.Mutex
	// Guarded by mu.
	seats    map[protocol.SessionID]*seat
	taken    int // Chromiums that start, run or end
	closed   bool
	observer Observer                           // nil: none
	pending  map[protocol.SessionID]jar.Pending // maybe not in the profile as they are kept
}

// An Observer is told what changes in sessions' browsers.
type Observer interface {
	// TabsChanged is called after tabs were opened, closed or switched, or have ended
	// with their Chromium. It must not block.
	TabsChanged(protocol.SessionID)
}

// Observe has o told what changes from now on.
func (b *Browser) Observe(o Observer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer = o
}

// A seat is a session's place for its Chromium.
// Guarded by Browser.mu, but for session and tabs.
type seat struct {
	session protocol.SessionID // static
	tabs    *tabs              // static
	account *Account           // nil before the first start
	running *chromium          // nil: there is none
	busy    *attempt           // a start or end in progress, or a write of its profile
	ended   bool               // the session has ended
	uses    int                // calls in progress
	idle    *time.Timer        // since the last call; nil: none yet
	failed  string             // why the last start failed
	viewers map[*viewer]struct{}
	last    map[int]Frame // of tabs that are watched, for new viewers
}

// news tells a seat's viewers and the observer of changes.
type news struct {
	browser *Browser
	seat    *seat
}

// tabsChanged implements [audience].
func (n news) tabsChanged() {
	n.browser.mu.Lock()
	n.browser.cast(n.seat)
	o := n.browser.observer
	n.browser.mu.Unlock()
	if o != nil {
		o.TabsChanged(n.seat.session)
	}
}

// An attempt is a start or an end of a Chromium, or a write of its profile.
type attempt struct {
	starts bool
	done   chan struct{}
	err    error // of a start; valid when done is closed
}

// New returns a Browser without Chromiums. It empties opts.Dir.
func New(opts Options) (*Browser, error) {
	opts.IdleTimeout = cmp.Or(opts.IdleTimeout, DefaultIdleTimeout)
	opts.Max = cmp.Or(opts.Max, DefaultMax)
	if err := os.RemoveAll(opts.Dir); err != nil {
		return nil, fmt.Errorf("clear the browsers' folder: %w", err)
	}
	if err := os.MkdirAll(opts.Dir, 0o711); err != nil { // users may pass through but not list it
		return nil, fmt.Errorf("make the browsers' folder: %w", err)
	}
	if err := os.Chmod(opts.Dir, 0o711); err != nil { // regardless of the umask
		return nil, err
	}
	b := &Browser{opts: opts, own: &ports{listen: make(map[int]bool)}, seats: make(map[protocol.SessionID]*seat), pending: map[protocol.SessionID]jar.Pending{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// seat returns the session's seat and makes it if necessary. The caller holds
// mu.
func (b *Browser) seat(session protocol.SessionID) *seat {
	s := b.seats[session]
	if s == nil {
		s = &seat{session: session, viewers: make(map[*viewer]struct{}), last: make(map[int]Frame)}
		s.tabs = newTabs(news{b, s})
		b.seats[session] = s
	}
	return s
}

// tidy removes an empty seat. The caller holds mu.
func (b *Browser) tidy(s *seat) {
	if s.account == nil && s.running == nil && s.busy == nil && len(s.viewers) == 0 && s.failed == "" && b.seats[s.session] == s {
		delete(b.seats, s.session)
	}
}

var errClosed = protocol.Errorf(protocol.KindEnded, "the session is over")

// use returns the session's Chromium, started if necessary, with its tabs. Then the
// one that is wanted is its first. It isn't idle until release is called.
func (b *Browser) use(ctx context.Context, session protocol.SessionID, want roster.Want) (c *chromium, t *tabs, release func(), err error) {
	for {
		b.mu.Lock()
		s := b.seat(session)
		if b.closed || s.ended {
			b.mu.Unlock()
			return nil, nil, nil, errClosed
		}
		if c = s.running; c != nil && c.dead() {
			b.mu.Unlock()
			b.end(s, func() bool { return s.running == c })
			continue
		}
		if c != nil {
			s.uses++
			b.mu.Unlock()
			return c, s.tabs, sync.OnceFunc(func() { b.release(s) }), nil
		}
		if s.busy == nil {
			if b.taken >= b.opts.Max {
				b.tidy(s)
				b.mu.Unlock()
				return nil, nil, nil, protocol.Errorf(protocol.KindTooMany, "%d browsers run in this sandbox already", b.opts.Max)
			}
			b.taken++
			s.busy = &attempt{starts: true, done: make(chan struct{})}
			b.wait.Go(func() { b.start(s, want) })
		}
		wait := s.busy
		b.mu.Unlock()
		select {
		case <-wait.done:
			if wait.starts && wait.err != nil {
				return nil, nil, nil, wait.err
			}
		case <-ctx.Done():
			return nil, nil, nil, ctx.Err()
		}
	}
}

// release ends a use.
func (b *Browser) release(s *seat) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.uses--
	if s.uses > 0 || s.running == nil {
		return
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	c := s.running
	var timer *time.Timer // compared under mu, as it may fire while another replaces it
	timer = time.AfterFunc(b.opts.IdleTimeout, func() {
		b.end(s, func() bool { return s.running == c && s.uses == 0 && s.idle == timer })
	})
	s.idle = timer
}

// start executes a seat's attempt to start.
func (b *Browser) start(s *seat, want roster.Want) {
	c, err := b.launch(s, want)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.busy.err = err
	close(s.busy.done)
	s.busy, s.failed = nil, ""
	if err != nil {
		s.failed = protocol.AsError(err).Message
		b.taken--
		return
	}
	s.running = c
	b.cast(s)
	b.wait.Go(func() {
		<-c.gone
		b.end(s, func() bool { return s.running == c })
	})
}

// launch starts a seat's Chromium.
func (b *Browser) launch(s *seat, want roster.Want) (*chromium, error) {
	b.mu.Lock()
	known, pending := s.account, b.pending[s.session] // nobody adds to it while it starts
	b.mu.Unlock()
	if known == nil {
		a, err := b.opts.account(s.session)
		if err != nil {
			return nil, err
		}
		known = &a
		b.mu.Lock()
		s.account = known
		b.mu.Unlock()
	}
	at := place{session: s.session, profile: b.profile(s.session), account: *known, own: b.own, tabs: s.tabs, want: want}
	if b.opts.kept != nil {
		at.kept, at.pending = b.opts.kept.Kept(s.session), pending
	}
	c, err := start(b.ctx, at, &b.opts)
	if err == nil {
		b.mu.Lock()
		delete(b.pending, s.session)
		b.mu.Unlock()
	}
	return c, err
}

// profile returns the folder of a session's Chromium.
func (b *Browser) profile(session protocol.SessionID) string {
	return filepath.Join(b.opts.Dir, string(session))
}

// end ends a seat's Chromium, if there is one and sure still returns true, and
// waits for that. sure is called with mu held.
func (b *Browser) end(s *seat, sure func() bool) {
	b.mu.Lock()
	if s.running == nil || !sure() {
		b.mu.Unlock()
		return
	}
	c := s.running
	s.running = nil
	clear(s.last)
	s.busy = &attempt{done: make(chan struct{})}
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	b.mu.Unlock()
	s.tabs.end(c)
	c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken--
	close(s.busy.done)
	s.busy = nil
}

// stop ends a seat's Chromium after the running attempt.
func (b *Browser) stop(ctx context.Context, s *seat) error {
	for {
		b.end(s, func() bool { return true })
		b.mu.Lock()
		wait := s.busy
		over := s.running == nil && wait == nil
		b.mu.Unlock()
		if over {
			return nil
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// End ends the session's Chromium for good, and removes its data.
func (b *Browser) End(session protocol.SessionID) {
	b.mu.Lock()
	s := b.seats[session]
	if s == nil {
		b.mu.Unlock()
		return
	}
	s.ended = true
	for v := range s.viewers {
		v.leave()
	}
	b.mu.Unlock()
	_ = b.stop(context.Background(), s) // it has no deadline
	b.mu.Lock()
	account := s.account
	delete(b.seats, session)
	delete(b.pending, session)
	b.mu.Unlock()
	if err := os.RemoveAll(b.profile(session)); err != nil {
		b.opts.Log.Warn("a browser's folder could not be removed", "session", session, "error", err)
	}
	if account != nil {
		account.release()
	}
}

// Close ends all Chromiums and waits for that.
func (b *Browser) Close() error {
	b.cancel()
	b.mu.Lock()
	b.closed = true
	var sessions []protocol.SessionID
	for session := range b.seats {
		sessions = append(sessions, session)
	}
	b.mu.Unlock()
	var all sync.WaitGroup
	for _, session := range sessions {
		all.Go(func() { b.End(session) })
	}
	all.Wait()
	b.wait.Wait()
	return nil
}

// Stop ends the session's Chromium. Its data stays for the next one.
func (b *Browser) Stop(ctx context.Context, session protocol.SessionID) error {
	b.mu.Lock()
	s := b.seats[session]
	b.mu.Unlock()
	if s == nil {
		return nil
	}
	return b.stop(ctx, s)
}

// Status returns the state of the session's Chromium. It starts none.
func (b *Browser) Status(ctx context.Context, session protocol.SessionID) op.BrowserStatus {
	b.mu.Lock()
	status := op.BrowserStatus{State: stateStopped}
	var t *tabs
	if s := b.seats[session]; s != nil {
		if s.running != nil {
			t = s.tabs
		}
		status.Error = s.failed
		if s.busy != nil && s.busy.starts {
			status.State = stateStarting
		}
	}
	b.mu.Unlock()
	if t == nil {
		return status
	}
	all, err := t.list(ctx)
	if err != nil {
		return op.BrowserStatus{State: stateStopped}
	}
	status.State, status.Tabs = stateRunning, all
	for _, tab := range all {
		if tab.Active {
			status.URL, status.Title = tab.URL, tab.Title // empty if it is too busy to answer
		}
	}
	return status
}

// Tabs returns the open tabs of the session's Chromium, none while it doesn't run.
func (b *Browser) Tabs(ctx context.Context, session protocol.SessionID) []op.BrowserTab {
	return b.Status(ctx, session).Tabs
}

// SwitchTab makes an open tab of the session's Chromium the active one. It fails
// with KindNotFound for any other.
func (b *Browser) SwitchTab(session protocol.SessionID, tab int) error {
	t := b.tabsOf(session)
	if t == nil {
		return errNoTabs
	}
	return t.show(tab)
}

var errNoTabs = protocol.Errorf(protocol.KindNotFound, "no tab is open")

// TabClosed reports whether there was such a tab, and never will be again.
func (b *Browser) TabClosed(session protocol.SessionID, tab int) bool {
	t := b.tabsOf(session)
	return t != nil && t.closed(tab)
}

// ActiveTab returns the active tab of a session's browser; without one what the
// next is called.
func (b *Browser) ActiveTab(session protocol.SessionID) int {
	t := b.tabsOf(session)
	if t == nil {
		return 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.roster.Active(), t.roster.Next())
}

// Place returns the tab that a tool's call is for, as far as known, and how many are
// open.
func (b *Browser) Place(caller toolbox.Caller, args json.RawMessage) (tab, open int) {
	t := b.tabsOf(caller.Session)
	var a struct {
		Tab int `json:"tab"`
	}
	_ = json.Unmarshal(args, &a) // the tool says what is wrong
	tab = cmp.Or(a.Tab, caller.Tab)
	if t == nil {
		return tab, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(tab, t.roster.Active()), len(t.roster.List())
}

// tabsOf returns the tabs of a session; nil: it has had no browser.
func (b *Browser) tabsOf(session protocol.SessionID) *tabs {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.seats[session]; s != nil {
		return s.tabs
	}
	return nil
}
