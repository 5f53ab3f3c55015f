package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
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
	// callTimeout bounds calls of Chromium without a tool's own timeout.
	callTimeout = 10 * time.Second
	// blank is the empty page.
	blank = "about:blank"
	// maxURL and maxTitle bound a page's reported URL and title, in bytes.
	maxURL, maxTitle = 2 << 10, 512
)

// A page is the one tab of a Chromium.
type page struct {
	// Static after attach.
	c       *chromium
	target  *chromedp.Target
	browser *chromedp.Browser
	frame   cdp.FrameID // of the tab

	turn   chan struct{} // one element; taken by whoever acts on the page
	screen screencast

	mu sync.Mutex
	// Guarded by mu.
	loading progress
	changed chan struct{} // closed when loading changes
}

// progress is the loading state of the tab's document.
type progress struct {
	loader  cdp.LoaderID
	content bool // its text is loaded
	loaded  bool // everything is loaded
}

// attach makes the tab and prepares it.
func (p *page) attach(c *chromium) error {
	p.c, p.turn = c, make(chan struct{}, 1)
	p.mu.Lock()
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if err := chromedp.Do(c.ctx); err != nil {
		return err
	}
	attached := chromedp.FromContext(c.ctx)
	p.target, p.browser, p.frame = attached.Target, attached.Browser, cdp.FrameID(attached.Target.TargetID)
	if err := errors.Join(chromedp.Listen(c.ctx, p.hear), chromedp.ListenBrowser(c.ctx, p.hearBrowser)); err != nil {
		return err
	}
	yes, no := true, false
	for _, step := range []struct {
		to     cdp.Session
		method string
		params any
	}{
		// Events that chromedp enables and nobody here uses: a page could keep the
		// agent busy with them.
		{p.target, css.Disable.Method, cdp.Empty{}},
		{p.target, dom.Disable.Method, cdp.Empty{}},
		{p.target, network.Disable.Method, cdp.Empty{}},
		{p.target, cdplog.Disable.Method, cdp.Empty{}},
		{p.target, runtime.Disable.Method, cdp.Empty{}},
		{p.target, target.SetAutoAttach.Method, target.SetAutoAttachParams{AutoAttach: false, Flatten: &yes}},
		{p.target, target.SetDiscoverTargets.Method, target.SetDiscoverTargetsParams{Discover: false}},
		{p.target, cdppage.SetInterceptFileChooserDialog.Method, cdppage.SetInterceptFileChooserDialogParams{Enabled: true, Cancel: &yes}},
		{p.target, emulation.SetDeviceMetricsOverride.Method, emulation.SetDeviceMetricsOverrideParams{Width: viewWidth, Height: viewHeight, DeviceScaleFactor: 1}},
		{p.browser, cdpbrowser.SetDownloadBehavior.Method, cdpbrowser.SetDownloadBehaviorParams{Behavior: cdpbrowser.SetDownloadBehaviorBehaviorDeny, EventsEnabled: &no}},
		{p.browser, target.SetDiscoverTargets.Method, target.SetDiscoverTargetsParams{Discover: true}},
	} {
		if err := step.to.Call(c.ctx, step.method, step.params, nil); err != nil {
			return fmt.Errorf("%s: %w", step.method, err)
		}
	}
	return nil
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
		if e.UserGesture && op.CheckBrowserURL(e.URL) == nil {
			p.later(func(ctx context.Context) {
				_, _ = cdp.Call(ctx, p.target, cdppage.Navigate, cdppage.NavigateParams{URL: e.URL})
			})
		}
	case *cdppage.EventScreencastFrame:
		p.showFrame(e)
	case *inspector.EventTargetCrashed:
		p.c.crash()
	}
}

// hearBrowser is called with every event of the browser. It closes any second
// tab; without its tab a Chromium is useless.
func (p *page) hearBrowser(event any) {
	switch e := event.(type) {
	case *target.EventTargetCreated:
		if id := e.TargetInfo.TargetID; e.TargetInfo.Type == "page" && id != p.target.TargetID {
			p.later(func(ctx context.Context) {
				_, _ = cdp.Call(ctx, p.browser, target.CloseTarget, target.CloseTargetParams{TargetID: id})
			})
		}
	case *target.EventTargetDestroyed:
		if e.TargetID == p.target.TargetID {
			p.c.crash()
		}
	case *target.EventTargetCrashed:
		if e.TargetID == p.target.TargetID {
			p.c.crash()
		}
	}
}

// later calls do on another goroutine, which ends with the Chromium or soon.
func (p *page) later(do func(context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(p.c.ctx, callTimeout)
		defer cancel()
		do(ctx)
	}()
}

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

// act takes the turn to act on the page. done gives it back.
func (p *page) act(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, p.why(ctx, ctx.Err())
	case <-p.c.ctx.Done():
		return nil, errGone
	}
}

var (
	errGone    = protocol.Errorf(protocol.KindUnavailable, "the browser has ended; the next call starts it anew")
	errTimeout = protocol.Errorf(protocol.KindUnavailable, "the page did not answer in time")
)

// why translates an error of Chromium for the caller.
func (p *page) why(ctx context.Context, err error) error {
	var known *protocol.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case p.c.ctx.Err() != nil || p.c.dead():
		return errGone
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
	res, err := cdp.Call(ctx, p.browser, target.GetTargetInfo, target.GetTargetInfoParams{TargetID: p.target.TargetID})
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
