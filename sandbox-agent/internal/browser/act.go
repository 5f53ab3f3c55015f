package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/input"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// navigateTimeout bounds a navigation until the document's text is loaded. Its
	// connection may wait for somebody's decision.
	navigateTimeout = 80 * time.Second
	// leaveTimeout bounds the check that a page can be left.
	leaveTimeout = 4 * time.Second
	// loadGrace bounds the wait for a document's other resources.
	loadGrace = 5 * time.Second
	// evaluateTimeout bounds a script.
	evaluateTimeout = 30 * time.Second
	// maxText bounds a text that a tool returns, in bytes.
	maxText = 256 << 10
	// maxScript and maxTyped bound a caller's input, in bytes.
	maxScript, maxTyped = 256 << 10, 64 << 10
	// maxSelector bounds a selector, in bytes.
	maxSelector = 4 << 10
)

// navigate opens address, and returns whether the document loaded completely in
// time.
func (p *page) navigate(ctx context.Context, address string) (loaded bool, err error) {
	if err := op.CheckBrowserURL(address); err != nil {
		return false, err
	}
	if err := p.c.guard.foresee(address); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, navigateTimeout)
	defer cancel()
	if err := p.leave(ctx); err != nil {
		return false, err
	}
	p.since = p.c.guard.mark()
	res, err := cdp.Call(ctx, p.target, cdppage.Navigate, cdppage.NavigateParams{URL: address})
	if err != nil {
		return false, p.why(ctx, err)
	}
	if res.ErrorText != "" {
		if err := p.refused(address); err != nil {
			return false, err
		}
		return false, protocol.Errorf(protocol.KindUpstream, "%s", cut(res.ErrorText, maxTitle))
	}
	if res.LoaderID == "" {
		return true, nil // same document
	}
	return p.awaitLoad(ctx, res.LoaderID)
}

// refused returns why the guard answered instead of address, if it did.
func (p *page) refused(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	return p.c.guard.refusalOf(u, p.since)
}

// statusFunction returns the document's HTTP status; 0: none.
const statusFunction = `() => performance.getEntriesByType("navigation")[0]?.responseStatus ?? 0`

// shown returns what the tab shows, or why it is only the guard's answer.
func (p *page) shown(ctx context.Context) (address, title string, err error) {
	address, title, err = p.where(ctx)
	if err != nil {
		return "", "", err
	}
	if refused := p.refused(address); refused != nil {
		var status int
		if p.call(ctx, statusFunction, &status) == nil && (status == http.StatusForbidden || status == http.StatusBadGateway) {
			return "", "", refused
		}
	}
	return address, title, nil
}

// errHung says that a page is too busy to be left.
var errHung = protocol.Errorf(protocol.KindUnavailable, "the page computes without end; the next call opens its tab anew")

// leave returns errHung, and ends the page, if it is too busy to be left: the next
// one may need its process.
func (p *page) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.c.opts.leave, leaveTimeout))
	defer cancel()
	if _, err := cdp.Call(ctx, p.target, runtime.Evaluate, runtime.EvaluateParams{Expression: "0"}); !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return p.why(ctx, err)
	}
	p.of.lost(p, errHung)
	return errHung
}

// foresee returns why the guard would refuse address, as far as known.
func (g *guard) foresee(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || !namesThisMachine(u.Hostname()) {
		return nil
	}
	port := 80
	if u.Scheme == "https" {
		port = 443
	}
	if digits := u.Port(); digits != "" {
		if port, err = strconv.Atoi(digits); err != nil {
			return nil
		}
	}
	addrs, err := resolve(context.Background(), u.Hostname())
	if err != nil || len(addrs) == 0 {
		return nil
	}
	return g.judge(addrs[0], port)
}

// awaitLoad waits for loader's document, or for one that replaces it.
func (p *page) awaitLoad(ctx context.Context, loader cdp.LoaderID) (loaded bool, err error) {
	var grace <-chan time.Time
	seen := false
	for {
		now, changed := p.progress()
		if seen = seen || now.loader == loader; seen {
			if now.content && now.loaded {
				return true, nil
			}
			if now.content && grace == nil {
				timer := time.NewTimer(loadGrace)
				defer timer.Stop()
				grace = timer.C
			}
		}
		select {
		case <-changed:
		case <-grace:
			return false, nil
		case <-ctx.Done():
			return false, p.why(ctx, ctx.Err())
		case <-p.life.Done():
			return false, p.why(ctx, p.life.Err())
		}
	}
}

// evaluate runs script in the page and returns its value as JSON, or in printed
// form if JSON has none for it.
func (p *page) evaluate(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, evaluateTimeout)
	defer cancel()
	value, thrown, err := p.value(ctx, script)
	if err != nil {
		if ctx.Err() != nil { // it may never end by itself
			p.later(func(ctx context.Context) { _, _ = cdp.Call(ctx, p.target, runtime.TerminateExecution, cdp.Empty{}) })
		}
		return "", p.why(ctx, err)
	}
	switch {
	case thrown != nil:
		return "", protocol.Errorf(protocol.KindInvalid, "%s", exception(thrown))
	case len(value.Value) > 0:
		return plain(value.Value), nil
	case value.UnserializableValue != "":
		return string(value.UnserializableValue), nil
	}
	return "undefined", nil
}

// value runs script as a console does, with top-level await and redeclarations,
// and returns its value or exception.
func (p *page) value(ctx context.Context, script string) (*runtime.RemoteObject, *runtime.ExceptionDetails, error) {
	yes := true
	res, err := cdp.Call(ctx, p.target, runtime.Evaluate, runtime.EvaluateParams{
		Expression: script, AwaitPromise: &yes, ReplMode: &yes, UserGesture: &yes,
	})
	if err != nil || res.ExceptionDetails != nil || res.Result.ObjectID == "" {
		return res.Result, res.ExceptionDetails, err
	}
	defer p.later(func(ctx context.Context) {
		_, _ = cdp.Call(ctx, p.target, runtime.ReleaseObject, runtime.ReleaseObjectParams{ObjectID: res.Result.ObjectID})
	})
	if res.Result.Subtype == runtime.RemoteObjectSubtypePromise {
		res, err := cdp.Call(ctx, p.target, runtime.AwaitPromise, runtime.AwaitPromiseParams{PromiseObjectID: res.Result.ObjectID, ReturnByValue: &yes})
		return res.Result, res.ExceptionDetails, err
	}
	called, err := cdp.Call(ctx, p.target, runtime.CallFunctionOn, runtime.CallFunctionOnParams{
		FunctionDeclaration: "function () { return this }", ObjectID: res.Result.ObjectID, ReturnByValue: &yes,
	})
	return called.Result, called.ExceptionDetails, err
}

// plain returns value without unnecessary escapes.
func plain(value jsonv2.Value) string {
	text := value.Clone()
	if err := text.Format(jsonv2.AllowInvalidUTF8(true)); err != nil {
		return string(value)
	}
	return string(text)
}

// findFunction finds the element of a selector: an XPath if it begins with / or
// (, otherwise CSS.
const findFunction = `(selector) => {
	if (/^[\/(]/.test(selector)) {
		return document.evaluate(selector, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE, null).singleNodeValue;
	}
	return document.querySelector(selector);
}`

// spotFunction returns an element's state, and its centre in the window after
// scrolling there.
const spotFunction = `(selector, scroll) => {
	const find = ` + findFunction + `;
	const e = find(selector);
	if (!(e instanceof Element)) return {found: false};
	if (scroll) e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
	const r = e.getBoundingClientRect(), style = getComputedStyle(e);
	const visible = r.width > 0 && r.height > 0 && style.visibility === "visible";
	return {found: true, visible, x: r.x + r.width / 2, y: r.y + r.height / 2};
}`

// A spot is where an element is.
type spot struct {
	Found   bool    `json:"found"`
	Visible bool    `json:"visible"`
	X       float64 `json:"x"` // pixels from the window's left
	Y       float64 `json:"y"` // pixels from the window's top
}

// await waits until an element is as wanted, for at most patience.
func (p *page) await(ctx context.Context, selector string, patience time.Duration, scroll bool, wanted func(spot) bool) (spot, error) {
	if selector == "" {
		return spot{}, protocol.Errorf(protocol.KindInvalid, "there is no selector")
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		var s spot
		err := p.call(ctx, spotFunction, &s, selector, scroll)
		if err == nil && wanted(s) {
			return s, nil
		}
		// Between two documents there is no context for a function.
		if err != nil && protocol.KindOf(err) != protocol.KindUpstream {
			return spot{}, err
		}
		select {
		case <-ticker.C:
		case <-timer.C:
			return spot{}, protocol.Errorf(protocol.KindNotFound, "no such element in time: %s", cut(selector, maxTitle))
		case <-ctx.Done():
			return spot{}, p.why(ctx, ctx.Err())
		case <-p.life.Done():
			return spot{}, p.why(ctx, p.life.Err())
		}
	}
}

func visible(s spot) bool { return s.Visible }

// click clicks the centre of an element.
func (p *page) click(ctx context.Context, selector string, patience time.Duration) error {
	s, err := p.await(ctx, selector, patience, true, visible)
	if err != nil {
		return err
	}
	one := int64(1)
	for _, kind := range []input.DispatchMouseEventType{
		input.DispatchMouseEventTypeMouseMoved, input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased,
	} {
		params := input.DispatchMouseEventParams{Type: kind, X: s.X, Y: s.Y}
		if kind != input.DispatchMouseEventTypeMouseMoved {
			params.Button, params.ClickCount = input.MouseButtonLeft, one
		}
		if _, err := cdp.Call(ctx, p.target, input.DispatchMouseEvent, params); err != nil {
			return p.why(ctx, err)
		}
	}
	return nil
}

// focusFunction focuses an element and prepares it for typing, which replaces
// or extends its content. In a list it chooses the entry by value or label
// itself.
const focusFunction = `(selector, text, clear) => {
	const find = ` + findFunction + `;
	const e = find(selector);
	if (!(e instanceof HTMLElement)) return "gone";
	if (e instanceof HTMLSelectElement) {
		const option = [...e.options].find((o) => o.value === text || o.label === text);
		if (!option) return "no such entry";
		e.value = option.value;
		for (const name of ["input", "change"]) e.dispatchEvent(new Event(name, {bubbles: true}));
		return "chosen";
	}
	e.focus();
	if (typeof e.select === "function") {
		if (clear) e.select();
		else try { e.setSelectionRange(e.value.length, e.value.length); } catch {}
	} else if (e.isContentEditable) {
		const range = document.createRange();
		range.selectNodeContents(e);
		if (!clear) range.collapse(false);
		getSelection().removeAllRanges();
		getSelection().addRange(range);
	}
	return e === document.activeElement || e.contains(document.activeElement) ? "focused" : "can't be typed into";
}`

// typing is the input of page.write.
type typing struct {
	text          string
	clear, submit bool
}

// write types into an element.
func (p *page) write(ctx context.Context, selector string, patience time.Duration, t typing) error {
	if _, err := p.await(ctx, selector, patience, true, visible); err != nil {
		return err
	}
	var outcome string
	if err := p.call(ctx, focusFunction, &outcome, selector, t.text, t.clear); err != nil {
		return err
	}
	switch outcome {
	case "chosen":
		return nil
	case "focused":
	default:
		return protocol.Errorf(protocol.KindInvalid, "the element: %s", outcome)
	}
	if t.clear && t.text == "" {
		if err := p.key(ctx, "Delete", 46, ""); err != nil {
			return err
		}
	}
	if t.text != "" {
		if _, err := cdp.Call(ctx, p.target, input.InsertText, input.InsertTextParams{Text: t.text}); err != nil {
			return p.why(ctx, err)
		}
	}
	if t.submit {
		return p.key(ctx, "Enter", 13, "\r")
	}
	return nil
}

// key presses and releases a key.
func (p *page) key(ctx context.Context, name string, code int64, text string) error {
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		params := input.DispatchKeyEventParams{Type: kind, Key: name, Code: name, WindowsVirtualKeyCode: code, NativeVirtualKeyCode: code}
		if kind == input.DispatchKeyEventTypeKeyDown {
			params.Text = text
		}
		if _, err := cdp.Call(ctx, p.target, input.DispatchKeyEvent, params); err != nil {
			return p.why(ctx, err)
		}
	}
	return nil
}

// textFunction returns the text or the HTML of an element, or of the document.
const textFunction = `(selector, html, max) => {
	const find = ` + findFunction + `;
	const e = selector ? find(selector) : html ? document.documentElement : document.body ?? document.documentElement;
	if (!e) return {found: false};
	const text = String((html ? e.outerHTML : e.innerText ?? e.textContent) ?? "");
	return {found: true, text: text.slice(0, max), length: text.length};
}`

// text returns the text or HTML of an element, or of the whole document without
// a selector. It cuts it at maxText and says so.
func (p *page) text(ctx context.Context, selector string, html bool) (string, error) {
	var res struct {
		Found  bool   `json:"found"`
		Text   string `json:"text"`
		Length int    `json:"length"`
	}
	if err := p.call(ctx, textFunction, &res, selector, html, maxText); err != nil {
		return "", err
	}
	if !res.Found {
		return "", protocol.Errorf(protocol.KindNotFound, "no such element: %s", cut(selector, maxTitle))
	}
	return shorten(res.Text, res.Length), nil
}

// shorten cuts text, perhaps already the beginning of whole characters, to
// maxText bytes.
func shorten(text string, whole int) string {
	if len(text) <= maxText && len(text) >= whole {
		return text
	}
	const note = 100
	return fmt.Sprintf("%s\n[cut off: the whole has %d characters]", cut(text, maxText-note), whole)
}

// scrollFunction scrolls, and returns the window's position.
const scrollFunction = `(selector, x, y) => {
	const find = ` + findFunction + `;
	if (selector) {
		const e = find(selector);
		if (!(e instanceof Element)) return {found: false};
		e.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
	}
	window.scrollBy({left: x, top: y, behavior: "instant"});
	const d = document.scrollingElement ?? document.documentElement;
	return {found: true, x: window.scrollX, y: window.scrollY, width: d?.scrollWidth ?? 0, height: d?.scrollHeight ?? 0};
}`

// scroll scrolls to an element, if given, and by so many pixels.
func (p *page) scroll(ctx context.Context, selector string, x, y float64) (string, error) {
	var res json.RawMessage
	if err := p.call(ctx, scrollFunction, &res, selector, x, y); err != nil {
		return "", err
	}
	if strings.Contains(string(res), `"found":false`) {
		return "", protocol.Errorf(protocol.KindNotFound, "no such element: %s", cut(selector, maxTitle))
	}
	return string(res), nil
}
