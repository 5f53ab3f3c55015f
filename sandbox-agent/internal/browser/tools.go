package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	// defaultWait and maxWait bound the wait for an element.
	defaultWait, maxWait = 10 * time.Second, 60 * time.Second
	// pictureTimeout bounds a screenshot including all attempts.
	pictureTimeout = 30 * time.Second
)

// pageTools returns the reference's tools.
func (b *Browser) pageTools() []toolbox.Tool {
	return []toolbox.Tool{
		{Tool: describe("browser_start", "Start the session's browser (Chromium). The other tools start it by themselves.", ``), Call: b.toolStart},
		{Tool: describe("browser_stop", "Stop the session's browser. What it keeps, such as cookies, stays for the next start.", ``), Call: b.toolStop},
		{Tool: describe("browser_status", "Tell whether the browser runs, its tabs, and the URL and title of the active one's page.", ``), Call: b.toolStatus},
		{Tool: describeOn("browser_navigate", "Open a URL (http or https) and wait until the page has loaded. Servers in this sandbox can be reached at localhost.",
			`"url":{"type":"string","description":"http, https or about:blank"}`, "url"), Call: b.toolNavigate},
		{Tool: describeOn("browser_screenshot", "Take a picture of the page.",
			`"full_page":{"type":"boolean","description":"the whole page, not only what the window shows"}`), Call: on(b, pictureTimeout, toolScreenshot)},
		{Tool: describeOn("browser_click", "Click on an element, once it is visible. A window that this opens is a tab of its own, which the answer names.",
			selectorSchema+`,`+timeoutSchema, "selector"), Call: on(b, maxWait+callTimeout, toolClick)},
		{Tool: describeOn("browser_type", "Type text into an element, or choose an entry of a list.",
			selectorSchema+`,"text":{"type":"string"},"clear":{"type":"boolean","description":"replace what is in it; default false"},"submit":{"type":"boolean","description":"press Enter afterwards; default false"},`+timeoutSchema,
			"selector", "text"), Call: on(b, maxWait+callTimeout, toolType)},
		{Tool: describeOn("browser_get_content", "Return the visible text of the page or of an element.",
			selectorSchema), Call: read(b, toolContent)},
		{Tool: describeOn("browser_get_html", "Return the HTML of the page or of an element.",
			selectorSchema), Call: read(b, toolHTML)},
		{Tool: describeOn("browser_get_url", "Return the URL of the page.", ``), Call: read(b, toolURL)},
		{Tool: describeOn("browser_get_title", "Return the title of the page.", ``), Call: read(b, toolTitle)},
		{Tool: describeOn("browser_wait", "Wait for an element.",
			selectorSchema+`,"state":{"type":"string","enum":["visible","present","gone"],"description":"default visible"},`+timeoutSchema, "selector"), Call: read(b, toolWait)},
		{Tool: describeOn("browser_evaluate", "Run JavaScript in the page and return the value of its last expression as JSON; a promise is awaited.",
			`"script":{"type":"string"}`, "script"), Call: on(b, evaluateTimeout+callTimeout, toolEvaluate)},
		{Tool: describeOn("browser_scroll", "Scroll to an element, or by so many pixels. Returns where the window stands.",
			selectorSchema+`,"x":{"type":"number","description":"pixels to the right"},"y":{"type":"number","description":"pixels down"}`), Call: on(b, callTimeout, toolScroll)},
	}
}

const (
	selectorSchema = `"selector":{"type":"string","description":"CSS, or XPath when it begins with / or ("}`
	tabSchema      = `"tab":{"type":"integer","minimum":1,"description":"which tab, of browser_tabs; default: the one that you are bound to, or the active one"}`
	timeoutSchema  = `"timeout_seconds":{"type":"number","minimum":0,"maximum":60,"description":"how long to wait for the element; default 10"}`
)

// describe returns a tool whose arguments have these properties.
func describe(name, description, properties string, required ...string) protocol.Tool {
	schema := `{"type":"object","properties":{` + properties + `}`
	if len(required) > 0 {
		list, err := json.Marshal(required)
		if err != nil {
			panic(err) // strings can always be encoded
		}
		schema += `,"required":` + string(list)
	}
	return protocol.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema + `,"additionalProperties":false}`)}
}

// describeOn returns a tool that is for a tab.
func describeOn(name, description, properties string, required ...string) protocol.Tool {
	if properties != "" {
		properties += ","
	}
	return describe(name, description, properties+tabSchema, required...)
}

// arguments are those of all tools together.
type arguments struct {
	Tab            int      `json:"tab"`
	URL            string   `json:"url"`
	FullPage       bool     `json:"full_page"`
	Selector       string   `json:"selector"`
	Text           string   `json:"text"`
	Clear          bool     `json:"clear"`
	Submit         bool     `json:"submit"`
	State          string   `json:"state"`
	TimeoutSeconds *float64 `json:"timeout_seconds"`
	Script         string   `json:"script"`
	X              float64  `json:"x"`
	Y              float64  `json:"y"`
}

func parse(args json.RawMessage) (a arguments, err error) {
	if len(args) > 0 {
		if err := json.Unmarshal(args, &a); err != nil {
			return a, protocol.Errorf(protocol.KindInvalid, "arguments of a wrong type")
		}
	}
	switch {
	case a.Tab < 0:
		return a, protocol.Errorf(protocol.KindInvalid, "tab: a number of browser_tabs")
	case len(a.Selector) > maxSelector, len(a.Text) > maxTyped, len(a.Script) > maxScript:
		return a, protocol.Errorf(protocol.KindTooLarge, "at most %d bytes of selector, %d of text, %d of script", maxSelector, maxTyped, maxScript)
	}
	return a, nil
}

// want returns the tab that a call is for.
func (a arguments) want(caller toolbox.Caller) roster.Want {
	if a.Tab == 0 && caller.Tab > 0 {
		return roster.Want{Tab: caller.Tab, Bound: true}
	}
	return roster.Want{Tab: a.Tab}
}

// patience returns how long to wait for an element.
func (a arguments) patience() time.Duration {
	if a.TimeoutSeconds == nil {
		return defaultWait
	}
	seconds := min(max(*a.TimeoutSeconds, 0), maxWait.Seconds()) // JSON has no NaN
	return time.Duration(seconds * float64(time.Second))
}

// call is the type of toolbox.Tool.Call.
type call func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error)

// read makes a tool that reads the page.
func read(b *Browser, do func(context.Context, *page, arguments) (protocol.ToolResult, error)) call {
	return b.tool(maxWait+callTimeout, do)
}

// on makes a tool that acts on the page: one at a time.
func on(b *Browser, timeout time.Duration, do func(context.Context, *page, arguments) (protocol.ToolResult, error)) call {
	return b.tool(timeout, func(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
		done, err := p.act(ctx)
		if err != nil {
			return protocol.ToolResult{}, err
		}
		defer done()
		return do(ctx, p, a)
	})
}

// tool makes a tool of do, which gets the page that the caller wants.
func (b *Browser) tool(timeout time.Duration, do func(context.Context, *page, arguments) (protocol.ToolResult, error)) call {
	return func(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
		a, err := parse(args)
		if err != nil {
			return protocol.ToolResult{}, err
		}
		c, t, release, err := b.begin(ctx, caller, a)
		if err != nil {
			return protocol.ToolResult{}, err
		}
		defer release()
		p, err := t.page(ctx, c, a.want(caller))
		if err != nil {
			return protocol.ToolResult{}, err
		}
		ctx, cancel := p.during(ctx, timeout)
		defer cancel()
		return do(ctx, p, a)
	}
}

// begin returns the Chromium of a caller's session, and its tabs.
func (b *Browser) begin(ctx context.Context, caller toolbox.Caller, a arguments) (*chromium, *tabs, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout+quitGrace)
	defer cancel()
	return b.use(ctx, caller.Session, a.want(caller))
}

func (b *Browser) toolStart(ctx context.Context, caller toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
	_, _, release, err := b.begin(ctx, caller, arguments{})
	if err != nil {
		return protocol.ToolResult{}, err
	}
	defer release()
	return toolbox.JSON(b.Status(ctx, caller.Session))
}

func (b *Browser) toolStop(ctx context.Context, caller toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
	if err := b.Stop(ctx, caller.Session); err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(b.Status(ctx, caller.Session))
}

func (b *Browser) toolStatus(ctx context.Context, caller toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
	return toolbox.JSON(b.Status(ctx, caller.Session))
}

// toolNavigate opens a URL. A page that can't be left is replaced.
func (b *Browser) toolNavigate(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
	call := on(b, navigateTimeout+maxWait, navigate)
	result, err := call(ctx, caller, args)
	if errors.Is(err, errHung) {
		result, err = call(ctx, caller, args)
	}
	return result, err
}

func navigate(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	loaded, err := p.navigate(ctx, a.URL)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	address, title, err := p.shown(ctx)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.JSON(struct {
		URL    string `json:"url"`
		Title  string `json:"title"`
		Loaded bool   `json:"loaded"` // false: something of the page is still on its way
	}{address, title, loaded})
}

func toolScreenshot(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	shot, err := p.screenshot(ctx, a.FullPage)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return protocol.ToolResult{Content: []protocol.ToolContent{{Type: "image", Data: shot.data, MIMEType: shot.mime}}}, nil
}

func toolClick(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, a.patience()+callTimeout)
	defer cancel()
	p.took()
	if err := p.click(ctx, a.Selector, a.patience()); err != nil {
		return protocol.ToolResult{}, err
	}
	if tab := p.took(); tab != 0 {
		return toolbox.Text(fmt.Sprintf("clicked; that opened tab %d", tab)), nil
	}
	return toolbox.Text("clicked"), nil
}

func toolType(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, a.patience()+callTimeout)
	defer cancel()
	if err := p.write(ctx, a.Selector, a.patience(), typing{text: a.Text, clear: a.Clear, submit: a.Submit}); err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.Text("typed"), nil
}

func toolContent(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	return text(ctx, p, a.Selector, false)
}

func toolHTML(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	return text(ctx, p, a.Selector, true)
}

func text(ctx context.Context, p *page, selector string, html bool) (protocol.ToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := p.text(ctx, selector, html)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.Text(found), nil
}

func toolURL(ctx context.Context, p *page, _ arguments) (protocol.ToolResult, error) {
	address, _, err := p.where(ctx)
	return toolbox.Text(address), err
}

func toolTitle(ctx context.Context, p *page, _ arguments) (protocol.ToolResult, error) {
	_, title, err := p.where(ctx)
	return toolbox.Text(title), err
}

func toolWait(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	wanted, ok := map[string]func(spot) bool{
		"": visible, "visible": visible,
		"present": func(s spot) bool { return s.Found },
		"gone":    func(s spot) bool { return !s.Visible },
	}[a.State]
	if !ok {
		return protocol.ToolResult{}, protocol.Errorf(protocol.KindInvalid, "state: visible, present or gone")
	}
	if _, err := p.await(ctx, a.Selector, a.patience(), false, wanted); err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.Text("the element is " + cmp.Or(a.State, "visible")), nil
}

func toolEvaluate(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	value, err := p.evaluate(ctx, a.Script)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.Text(shorten(value, len(value))), nil
}

func toolScroll(ctx context.Context, p *page, a arguments) (protocol.ToolResult, error) {
	stands, err := p.scroll(ctx, a.Selector, a.X, a.Y)
	if err != nil {
		return protocol.ToolResult{}, err
	}
	return toolbox.Text(stands), nil
}
