package browser

import (
	"context"
	"slices"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
)

// maxStrangers bounds the targets that are remembered while a page is made.
const maxStrangers = 64

// tabs are those of a session, through all its Chromiums. A tab whose page is gone,
// as it has crashed or its Chromium has ended, gets a new one when it is used.
type tabs struct {
	// Static after construction.
	told audience
	turn chan struct{} // one element; taken by whoever makes a page

	mu sync.Mutex
	// Guarded by mu.
	roster    roster.Roster
	c         *chromium // nil: none runs
	pages     map[int]*page
	making    bool        // a target may be ours that isn't known yet
	strangers []target.ID // that came meanwhile
	opening   bool        // a tab that a page has asked for is on its way
}

// An audience is told when tabs were opened, closed or switched, without mu held.
type audience interface{ tabsChanged() }

func newTabs(told audience) *tabs { return &tabs{told: told, turn: make(chan struct{}, 1)} }

// begin has the tabs be c's.
func (t *tabs) begin(c *chromium) error {
	t.mu.Lock()
	t.c, t.pages = c, map[int]*page{}
	t.mu.Unlock()
	return chromedp.ListenBrowser(c.ctx, func(event any) { t.hear(c, event) })
}

// end notes that c ends.
func (t *tabs) end(c *chromium) {
	t.mu.Lock()
	if t.c != c {
		t.mu.Unlock()
		return
	}
	for _, p := range t.pages {
		p.life.end(errGone)
	}
	t.c, t.pages = nil, nil
	t.roster.Sleep()
	t.mu.Unlock()
	t.told.tabsChanged()
}

// hear is called with every event of c. It closes what nobody here has opened.
func (t *tabs) hear(c *chromium, event any) {
	switch e := event.(type) {
	case *target.EventTargetCreated:
		if e.TargetInfo.Type == "page" {
			t.meet(c, e.TargetInfo.TargetID)
		}
	case *target.EventTargetDestroyed:
		t.miss(e.TargetID)
	case *target.EventTargetCrashed:
		t.miss(e.TargetID)
	}
}

// meet takes a target that has come: if it can't be ours it is closed.
func (t *tabs) meet(c *chromium, id target.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.c != c, t.owns(id):
	case t.making && len(t.strangers) < maxStrangers:
		t.strangers = append(t.strangers, id)
	default:
		closeTargets(c, id)
	}
}

// owns reports whether a page is ours. The caller holds mu.
func (t *tabs) owns(id target.ID) bool {
	for _, p := range t.pages {
		if p.target.TargetID == id {
			return true
		}
	}
	return false
}

// miss takes the end of a target that may be ours.
func (t *tabs) miss(id target.ID) {
	t.mu.Lock()
	var gone *page
	for _, p := range t.pages {
		if p.target.TargetID == id {
			gone = p
		}
	}
	t.mu.Unlock()
	if gone != nil {
		t.lost(gone, errCrashed)
	}
}

// page returns the page of the tab that is wanted, made if necessary.
func (t *tabs) page(ctx context.Context, c *chromium, want roster.Want) (*page, error) {
	t.mu.Lock()
	if t.c != c {
		t.mu.Unlock()
		return nil, errGone
	}
	id, err := t.roster.Get(want)
	p := t.pages[id]
	t.mu.Unlock()
	switch {
	case err != nil:
		c.opts.Metrics.tabRefused(err)
		return nil, err
	case p != nil:
		return p, nil
	}
	return t.make(ctx, c, id, false)
}

// open opens another tab.
func (t *tabs) open(ctx context.Context, c *chromium) (*page, error) {
	t.mu.Lock()
	id, err := t.roster.Open()
	t.mu.Unlock()
	if err != nil {
		c.opts.Metrics.tabRefused(err)
		return nil, err
	}
	p, err := t.make(ctx, c, id, false)
	if err != nil {
		t.forget(id)
	}
	return p, err
}

// forget closes a tab that has no page.
func (t *tabs) forget(id int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = t.roster.Close(id) // somebody may have closed it
}

// make makes the page of an open tab, unless there is one; with busy somebody has
// its turn from the beginning.
func (t *tabs) make(ctx context.Context, c *chromium, id int, busy bool) (*page, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.gone:
		return nil, errGone
	}
	t.mu.Lock()
	p, ended := t.pages[id], t.c != c
	t.making = !ended && p == nil
	t.mu.Unlock()
	switch {
	case ended:
		return nil, errGone
	case p != nil && busy:
		_, err := p.act(ctx)
		return p, err
	case p != nil:
		return p, nil
	}
	p, err := newPage(ctx, c, id, t)
	if busy && err == nil {
		p.turn <- struct{}{} // nobody else knows it
	}
	if err = t.made(c, p, err); err != nil {
		return nil, err
	}
	t.told.tabsChanged()
	return p, nil
}

// made lists a page that was made, unless its tab was closed meanwhile, and closes
// what else has come.
func (t *tabs) made(c *chromium, p *page, err error) error {
	t.mu.Lock()
	switch {
	case err != nil:
	case t.c != c:
		err = errGone
	case !slices.Contains(t.roster.List(), p.id):
		err = errTabClosed
	default:
		t.pages[p.id] = p
	}
	strangers := slices.DeleteFunc(t.strangers, t.owns)
	t.making, t.strangers = false, nil
	t.mu.Unlock()
	if err != nil && p != nil {
		p.end(err)
	}
	closeTargets(c, strangers...)
	return err
}

// close closes a tab for good. It reports whether that was the last one.
func (t *tabs) close(id int) (closed int, last bool, err error) {
	t.mu.Lock()
	closed, err = t.roster.Close(id)
	p := t.pages[closed]
	delete(t.pages, closed)
	last = len(t.roster.List()) == 0
	t.mu.Unlock()
	if err != nil {
		return 0, false, err
	}
	if p != nil {
		p.end(errTabClosed)
	}
	t.told.tabsChanged()
	return closed, last, nil
}

// show makes a tab the active one.
func (t *tabs) show(id int) error {
	t.mu.Lock()
	err := t.roster.Switch(id)
	t.mu.Unlock()
	if err == nil {
		t.told.tabsChanged()
	}
	return err
}

// empty reports whether no tab is open.
func (t *tabs) empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.roster.List()) == 0
}

// closed reports whether a tab was closed for good.
func (t *tabs) closed(id int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.roster.Closed(id)
}

// live returns the pages there are, and which tab is active.
func (t *tabs) live() (pages []*page, active int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range t.roster.List() {
		if p := t.pages[id]; p != nil {
			pages = append(pages, p)
		}
	}
	return pages, t.roster.Active()
}

// list returns what the open tabs show. Which ones there are it tells even if
// Chromium is too busy to say more.
func (t *tabs) list(ctx context.Context) ([]op.BrowserTab, error) {
	t.mu.Lock()
	c, active := t.c, t.roster.Active()
	var all []op.BrowserTab
	shows := map[target.ID]int{}
	for i, id := range t.roster.List() {
		all = append(all, op.BrowserTab{ID: id, Active: id == active})
		if p := t.pages[id]; p != nil {
			shows[p.target.TargetID] = i
		}
	}
	t.mu.Unlock()
	if c == nil {
		return nil, errGone
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := cdp.Call(ctx, c.browser, target.GetTargets, target.GetTargetsParams{})
	if err != nil {
		if c.dead() {
			return nil, errGone
		}
		return all, nil
	}
	for _, info := range res.TargetInfos {
		if i, ours := shows[info.TargetID]; ours {
			all[i].URL, all[i].Title = cut(info.URL, maxURL), cut(info.Title, maxTitle)
		}
	}
	return all, nil
}

// lost implements [holder]. A Chromium without pages is useless.
func (t *tabs) lost(p *page, why error) {
	t.mu.Lock()
	if t.pages[p.id] != p {
		t.mu.Unlock()
		return
	}
	delete(t.pages, p.id)
	last := len(t.pages) == 0
	t.mu.Unlock()
	p.end(why)
	if last {
		p.c.crash()
	}
	p.c.later(func(context.Context) { t.told.tabsChanged() }) // this may be where events are heard
}

// wants implements [holder]: what a page opens is a tab of ours, made before
// anything of it is loaded. There is one on its way at a time, so that a page that
// opens a thousand gets few. It is the active one if the page's own was.
func (t *tabs) wants(p *page, address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pages[p.id] != p {
		return
	}
	if t.opening {
		p.c.opts.Metrics.refused(refusedWindow)
		return
	}
	id, err := t.roster.Open()
	if err != nil {
		p.c.opts.Metrics.tabRefused(err)
		return
	}
	if t.roster.Active() == p.id {
		_ = t.roster.Switch(id) // it is open
	}
	t.opening = true
	p.has(id)
	p.c.later(func(ctx context.Context) { t.bring(ctx, p.c, id, address) })
}

// bring opens address in a tab that a page has asked for.
func (t *tabs) bring(ctx context.Context, c *chromium, id int, address string) {
	p, err := t.make(ctx, c, id, true)
	t.mu.Lock()
	t.opening = false
	t.mu.Unlock()
	if err != nil {
		t.forget(id)
		return
	}
	defer func() { <-p.turn }()
	_, _ = cdp.Call(ctx, p.target, cdppage.Navigate, cdppage.NavigateParams{URL: address}) // or the tab is gone
}
