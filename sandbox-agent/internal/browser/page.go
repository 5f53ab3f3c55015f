package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/css"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/inspector"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// lookEvery is the interval of looking for what changes by itself.
	lookEvery = 100 * time.Millisecond
	// openTimeout bounds how long a page is made.
	openTimeout = 30 * time.Second
	// closeTimeout bounds how long a target may take to close, or it costs all tabs.
	closeTimeout = 30 * time.Second
	// closeAgain is how long a target may take before it is asked once more.
	closeAgain = time.Second
	// blank is the empty page.
	blank = "about:blank"
	// maxURL and maxTitle bound a page's reported URL and title, in bytes.
	maxURL, maxTitle = 2 << 10, 512
)

// A page is what a tab shows, until it crashes or its tab is closed.
type page struct {
	// Static after newPage.
	c      *chromium
	id     int // of the tab
	of     holder
	target *chromedp.Target
	frame  cdp.FrameID     // of the tab
	tab    context.Context // chromedp's
	life   *life

	turn   chan struct{} // one element; taken by whoever acts on the page
	since  uint64        // the guard's mark when the last navigation began; of whoever has the turn
	screen screencast

	mu sync.Mutex
	// Guarded by mu.
	loading progress
	changed chan struct{} // closed when loading changes
	opened  int           // the latest tab that the page has opened; 0: none
}

// A holder has pages. It must not block.
type holder interface {
	// wants is told that a page opens a window, with somebody's consent.
	wants(p *page, address string)
	// lost is told that a page is useless.
	lost(p *page, why error)
}

// progress is the loading state of the tab's document.
type progress struct {
	loader  cdp.LoaderID
	content bool // its text is loaded
	loaded  bool // everything is loaded
}

// newPage makes an empty page of c's and prepares it. Nothing is loaded before.
func newPage(ctx context.Context, c *chromium, id int, of holder) (*page, error) {
	p := &page{c: c, id: id, of: of, turn: make(chan struct{}, 1), changed: make(chan struct{}), life: &life{done: make(chan struct{})}}
	var cancel context.CancelFunc
	p.tab, cancel = chromedp.NewContext(c.ctx)
	late := time.AfterFunc(openTimeout, cancel) // the tab's context must have no deadline of its own
	left := context.AfterFunc(ctx, cancel)
	err := p.prepare()
	if !late.Stop() || !left() {
		err = cmp.Or(ctx.Err(), error(errTimeout))
	}
	if err != nil {
		err = p.why(ctx, err)
		p.end(err)
		return nil, err
	}
	return p, nil
}

// prepare makes the target and says what is heard of it.
func (p *page) prepare() error {
	if err := chromedp.Do(p.tab); err != nil {
		return err
	}
	p.target = chromedp.FromContext(p.tab).Target
	p.frame = cdp.FrameID(p.target.TargetID)
	if err := chromedp.Listen(p.tab, p.hear); err != nil {
		return err
	}
	yes := true
	for _, step := range []struct {
		method string
		params any
	}{
		// Events that chromedp enables and nobody here uses: a page could keep the
		// agent busy with them.
		{css.Disable.Method, cdp.Empty{}},
		{dom.Disable.Method, cdp.Empty{}},
		{network.Disable.Method, cdp.Empty{}},
		{cdplog.Disable.Method, cdp.Empty{}},
		{runtime.Disable.Method, cdp.Empty{}},
		{target.SetAutoAttach.Method, target.SetAutoAttachParams{AutoAttach: false, Flatten: &yes}},
		{target.SetDiscoverTargets.Method, target.SetDiscoverTargetsParams{Discover: false}},
		{cdppage.SetInterceptFileChooserDialog.Method, cdppage.SetInterceptFileChooserDialogParams{Enabled: true, Cancel: &yes}},
		{emulation.SetDeviceMetricsOverride.Method, emulation.SetDeviceMetricsOverrideParams{Width: viewWidth, Height: viewHeight, DeviceScaleFactor: 1}},
		// Keys go to a page that has the focus: each has it, whatever the others do.
		{emulation.SetFocusEmulationEnabled.Method, emulation.SetFocusEmulationEnabledParams{Enabled: true}},
	} {
		if err := p.target.Call(p.tab, step.method, step.params, nil); err != nil {
			return fmt.Errorf("%s: %w", step.method, err)
		}
	}
	return nil
}

// end ends the page and closes its target. What waits for it fails with why. One
// that can't be closed costs its Chromium.
func (p *page) end(why error) {
	p.life.end(why)
	p.c.within(closeTimeout, func(ctx context.Context) {
		if p.target != nil {
			// What still comes is heard until then: else it would be in the way of other
			// pages' events.
			_, _ = cdp.Call(ctx, p.c.browser, target.DetachFromTarget, target.DetachFromTargetParams{SessionID: p.target.SessionID})
		}
		_ = chromedp.Cancel(p.tab) // closes it
		if p.target != nil && p.c.ctx.Err() == nil && !p.left(ctx) {
			p.c.crash()
		}
	})
}

// A life is a page's, as a context.
type life struct {
	done chan struct{} // static
	once sync.Once
	why  error // valid when done is closed
}

func (l *life) end(why error) {
	l.once.Do(func() {
		l.why = why
		close(l.done)
	})
}

func (l *life) Deadline() (none time.Time, set bool) { return none, false }
func (l *life) Done() <-chan struct{}                { return l.done }
func (l *life) Value(any) any                        { return nil }
func (l *life) Err() error {
	select {
	case <-l.done:
		return l.why
	default:
		return nil
	}
}

// left waits until the target is gone, and reports whether it is. It asks again: a
// Chromium forgets to close a tab that has just been opened by another.
func (p *page) left(ctx context.Context) bool {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for asked := time.Now(); ; {
		if _, err := cdp.Call(ctx, p.c.browser, target.GetTargetInfo, target.GetTargetInfoParams{TargetID: p.target.TargetID}); err != nil && ctx.Err() == nil {
			return true // it isn't known, or nothing is any more
		}
		select {
		case now := <-ticker.C:
			if now.Sub(asked) >= closeAgain {
				asked = now
				closeTargets(p.c, p.target.TargetID)
			}
		case <-ctx.Done():
			return false
		}
	}
}

// hear is called with every event of the tab, in order. It must not block.
func (p *page) hear(event any) {
	switch e := event.(type) {
	case *cdppage.EventLifecycleEvent:
		if e.FrameID == p.frame {
			p.progressed(e)
		}
	case *cdppage.EventFrameNavigated:
		if e.Frame.ParentID == "" && !mayShow(e.Frame.URL) {
			p.later(func(ctx context.Context) {
				_, _ = cdp.Call(ctx, p.target, cdppage.Navigate, cdppage.NavigateParams{URL: blank}) // fails if the tab is gone
			})
		}
	case *cdppage.EventJavascriptDialogOpening:
		leave := e.Type == cdppage.DialogTypeBeforeunload // whoever navigates wants to leave
		p.later(func(ctx context.Context) {
			_, _ = cdp.Call(ctx, p.target, cdppage.HandleJavaScriptDialog, cdppage.HandleJavaScriptDialogParams{Accept: leave})
		})
	case *cdppage.EventWindowOpen:
		if !e.UserGesture || op.CheckBrowserURL(e.URL) != nil {
			p.c.opts.Metrics.refused(refusedWindow)
			return
		}
		p.of.wants(p, e.URL)
	case *cdppage.EventScreencastFrame:
		p.showFrame(e)
	case *inspector.EventTargetCrashed:
		p.of.lost(p, errCrashed)
	}
}

// has notes that the page has opened a tab.
func (p *page) has(tab int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = tab
}

// took returns the latest tab that the page has opened since the last call; 0:
// none.
func (p *page) took() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	tab := p.opened
	p.opened = 0
	return tab
}

// later calls do on another goroutine, which ends with the Chromium or soon.
func (p *page) later(do func(context.Context)) { p.c.later(do) }

// progressed updates the loading state.
func (p *page) progressed(e *cdppage.EventLifecycleEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.LoaderID != p.loading.loader {
		p.loading = progress{loader: e.LoaderID}
	}
	switch e.Name {
	case "DOMContentLoaded":
		p.loading.content = true
	case "load":
		p.loading.loaded = true
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *page) progress() (progress, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loading, p.changed
}

// during returns a context for a call that takes at most so long. It ends with the
// page.
func (p *page) during(ctx context.Context, atMost time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// act takes the turn to act on the page. done gives it back.
func (p *page) act(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, p.why(ctx, ctx.Err())
	case <-p.life.Done():
		return nil, p.why(ctx, p.life.Err())
	}
}

var (
	errTabClosed = protocol.Errorf(protocol.KindNotFound, "the tab was closed")
	errCrashed   = protocol.Errorf(protocol.KindUnavailable, "the page has crashed; the next call opens its tab anew")
	errGone      = protocol.Errorf(protocol.KindUnavailable, "the browser has ended; the next call starts it anew")
	errTimeout   = protocol.Errorf(protocol.KindUnavailable, "the page did not answer in time")
)

// why translates an error of Chromium for the caller.
func (p *page) why(ctx context.Context, err error) error {
	var known *protocol.Error
	switch {
	case err == nil:
		return nil
	case p.c.ctx.Err() != nil || p.c.dead():
		return errGone
	case errors.As(err, &known):
		return err
	case errors.As(p.life.Err(), &known):
		return known
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errTimeout
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &protocol.Error{Kind: protocol.KindUpstream, Message: cut(err.Error(), maxURL), Err: err}
}

// where returns what the tab shows.
func (p *page) where(ctx context.Context) (address, title string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := cdp.Call(ctx, p.c.browser, target.GetTargetInfo, target.GetTargetInfoParams{TargetID: p.target.TargetID})
	if err != nil {
		return "", "", p.why(ctx, err)
	}
	return cut(res.TargetInfo.URL, maxURL), cut(res.TargetInfo.Title, maxTitle), nil
}

// mayShow reports whether the tab may stay at address after a page navigated by
// itself. Pages make data: and blob: themselves.
func mayShow(address string) bool {
	scheme, _, _ := strings.Cut(strings.ToLower(address), ":")
	switch scheme {
	case "http", "https", "about", "data", "blob", "chrome-error", "":
		return true
	}
	return false
}

// call calls a function in the page's document, in an isolated world, so that a
// page can't change what the function calls. It decodes the result into answer.
func (p *page) call(ctx context.Context, function string, answer any, args ...any) error {
	world, err := cdp.Call(ctx, p.target, cdppage.CreateIsolatedWorld, cdppage.CreateIsolatedWorldParams{FrameID: p.frame, WorldName: "fairlead"})
	if err != nil {
		return p.why(ctx, err)
	}
	yes := true
	params := runtime.CallFunctionOnParams{
		FunctionDeclaration: function, ExecutionContextID: world.ExecutionContextID, ReturnByValue: &yes, AwaitPromise: &yes,
	}
	for _, arg := range args {
		text, err := json.Marshal(arg)
		if err != nil {
			return err
		}
		params.Arguments = append(params.Arguments, &runtime.CallArgument{Value: text})
	}
	res, err := cdp.Call(ctx, p.target, runtime.CallFunctionOn, params)
	if err != nil {
		return p.why(ctx, err)
	}
	if res.ExceptionDetails != nil {
		return protocol.Errorf(protocol.KindInvalid, "%s", exception(res.ExceptionDetails))
	}
	if err := json.Unmarshal(res.Result.Value, answer); err != nil {
		return protocol.Errorf(protocol.KindUpstream, "the page gave no answer")
	}
	return nil
}

// exception returns an exception as text.
func exception(e *runtime.ExceptionDetails) string {
	text := e.Text
	if e.Exception != nil && e.Exception.Description != "" {
		text, _, _ = strings.Cut(e.Exception.Description, "\n    at ")
	}
	return cut(text, maxURL)
}

// cut returns at most limit bytes of text without splitting a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}
