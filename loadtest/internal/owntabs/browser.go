// Package owntabs is a person's own browser: a headless Chromium with the
// extension, the console open in it, and tabs that a session may use.
package owntabs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/program/chromium"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// startTimeout bounds the start of a Chromium.
	startTimeout = time.Minute
	// closeTimeout bounds the orderly end of a Chromium; then it is killed.
	closeTimeout = 5 * time.Second
	// longestTemporary is how long the name of its temporary directory may be: a
	// socket is in there, and names of those are 107 bytes at most.
	longestTemporary = 60
	// stopEvery is after how many looks a worker that runs is stopped again.
	stopEvery = 50
	// shareMinutes is for how long tabs are shared: the longest there is.
	shareMinutes = 60
)

// Options say whose browser it is.
type Options struct {
	ExtensionID string
	Extension   string // its directory
	Console     string // its address, with the person's token
	Session     protocol.SessionID
	Tabs        int    // that are shared
	Dir         string // where its profile's directory is made; empty: with other temporary ones
}

// A Browser is one that runs. Its tabs are at a site of its own.
type Browser struct {
	// Static after construction.
	id      string // of the extension's installation
	shared  []int64
	ext     string
	session protocol.SessionID
	all     context.Context // the browser
	run     context.Context // whose end ends what is under way
	console page
	inside  page // a page of the extension's own
	tabs    []page
}

// With starts a browser, shares its tabs and calls use. Whatever is done in the
// browser ends with ctx, and the browser itself afterwards, in good order: a Chromium
// that is killed leaves files behind.
func With(ctx context.Context, o Options, use func(*Browser) error) (err error) {
	path, err := chromium.Find()
	if err != nil {
		return err
	}
	profile, err := os.MkdirTemp(o.Dir, "chromium-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(profile)) }()
	address, stop, err := serve()
	if err != nil {
		return err
	}
	defer stop()
	options := append(chromium.Headless(path, profile, o.Extension), chromedp.WSURLReadTimeout(startTimeout))
	if len(profile) <= longestTemporary {
		options = append(options, chromedp.Env("TMPDIR="+profile)) // what is left by one that was killed goes along
	}
	allocated, kill := chromedp.NewExecAllocator(context.WithoutCancel(ctx), options...)
	all, leave := chromedp.NewContext(allocated)
	defer func() {
		orderly, stop := context.WithTimeout(all, closeTimeout)
		_ = chromedp.Cancel(orderly) // otherwise it is killed
		stop()
		leave()
		kill()
		if a, ok := chromedp.FromContext(all).Allocator.(*chromedp.ExecAllocator); ok {
			a.Wait()
		}
	}()
	b := &Browser{ext: o.ExtensionID, session: o.Session, all: all, run: ctx, console: page{all, ctx}}
	if err := b.open(o, address); err != nil {
		return err
	}
	return use(b)
}

// open opens the pages and shares the tabs.
func (b *Browser) open(o Options, address string) error {
	if err := b.console.open(o.Console); err != nil {
		return fmt.Errorf("the console: %w", err)
	}
	if err := b.console.until(`document.querySelector('[data-testid=status]')?.innerText.includes('Connected')`); err != nil {
		return fmt.Errorf("the console: %w", err)
	}
	var err error
	if b.inside, err = b.newPage("chrome-extension://" + o.ExtensionID + "/pages.html"); err != nil {
		return fmt.Errorf("the extension: %w", err)
	}
	for i := range o.Tabs {
		tab, err := b.newPage(fmt.Sprintf("%s/%d", address, i))
		if err != nil {
			return fmt.Errorf("tab %d: %w", i, err)
		}
		b.tabs = append(b.tabs, tab)
	}
	return b.share(address)
}

func (b *Browser) newPage(url string) (page, error) {
	ctx, _ := chromedp.NewContext(b.all) // ends with the browser
	p := page{ctx, b.run}
	return p, p.open(url)
}

// serve makes the site that the tabs are at, until stop.
func serve() (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	site := &http.Server{ReadHeaderTimeout: stepTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><title>A site</title><script>window.list = []</script>`)
	})}
	done := make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		_ = site.Serve(l) // it always fails in the end
	}()
	return "http://" + l.Addr().String(), func() {
		_ = site.Close()
		<-done
	}, nil
}

// share does what a person does in the popup, for all tabs: the popup's own page
// asks the extension's worker. It is left then, since it would wake that.
func (b *Browser) share(address string) error {
	_, err := evaluate[any](b.inside, `(window.port = chrome.runtime.connect({name: 'pages'}), window.port.onMessage.addListener((s) => window.state = s), null)`)
	if err != nil {
		return err
	}
	if err := b.inside.until(fmt.Sprintf(`window.state?.sessions.some((s) => s.id === %q)`, b.session)); err != nil {
		return fmt.Errorf("the console doesn't find the extension: %w", err)
	}
	b.shared, err = evaluate[[]int64](b.inside, fmt.Sprintf(`(async () => {
		const all = await chrome.tabs.query({}), ids = [];
		for (let i = 0; i < %d; i++) {
			const id = all.find((tab) => tab.url === %q + '/' + i)?.id ?? 0;
			window.port.postMessage({do: 'share', tabId: id, sessionId: %q, minutes: %d});
			ids.push(id);
		}
		return ids;
	})()`, len(b.tabs), address, b.session, shareMinutes))
	if err != nil {
		return err
	}
	if err := b.inside.until(fmt.Sprintf(`window.state?.shares.length === %d`, len(b.tabs))); err != nil {
		return fmt.Errorf("sharing %d tabs: %w", len(b.tabs), err)
	}
	if b.id, err = evaluate[string](b.inside, `window.state.browserId`); err != nil {
		return err
	}
	return b.inside.open("chrome-extension://" + b.ext + "/manifest.json")
}

// Direct attaches to a tab from within the extension, has an expression evaluated
// and detaches, n times, one every so often. It returns how long each took.
func (b *Browser) Direct(tab, n int, every time.Duration, expression string) ([]time.Duration, error) {
	limit := stepTimeout + time.Duration(n)*every
	took, err := evaluateWithin[[]float64](b.inside, limit, fmt.Sprintf(`(async () => {
		const target = {tabId: %d}, took = [], start = performance.now();
		for (let i = 0; i < %d; i++) {
			await new Promise((resolve) => setTimeout(resolve, start + i * %g - performance.now()));
			const began = performance.now();
			await chrome.debugger.attach(target, '1.3');
			await chrome.debugger.sendCommand(target, 'Runtime.evaluate', {expression: %q, returnByValue: true});
			await chrome.debugger.detach(target);
			took.push(performance.now() - began);
		}
		return took;
	})()`, b.shared[tab], n, every.Seconds()*1000, expression))
	var all []time.Duration
	for _, ms := range took {
		all = append(all, time.Duration(ms*float64(time.Millisecond)))
	}
	return all, err
}

// Ran returns the numbers in the list of a tab's page, and empties it.
func (b *Browser) Ran(tab int) ([]int, error) {
	return evaluate[[]int](b.tabs[tab], `window.list.splice(0)`)
}

// Watch opens or closes the console's list of what ran, and brings the console to
// the front, or a tab.
func (b *Browser) Watch(on bool) error {
	button, front := "btn-mytabs-close", b.tabs[0]
	if on {
		button, front = "btn-mytabs", b.console
	}
	if err := front.front(); err != nil {
		return err
	}
	if _, err := evaluate[any](b.console, fmt.Sprintf(`(document.querySelector('[data-testid=%s]').click(), null)`, button)); err != nil {
		return err
	}
	return b.console.until(fmt.Sprintf(`document.querySelector('[data-testid=mytabs]').checkVisibility() === %v`, on))
}

// Sleep ends the extension's worker, as Chrome itself does after half a minute
// without work.
func (b *Browser) Sleep() error {
	ctx, stop := b.console.within(stepTimeout)
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	if err := b.inside.command(serviceworker.Enable); err != nil {
		return err
	}
	for n := 0; ; n++ {
		workers, err := b.workers()
		if err != nil || len(workers) == 0 {
			return err
		}
		if n%stopEvery == 0 { // one that was just woken is stopped again
			if err := b.inside.command(serviceworker.StopAllWorkers); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the extension's worker doesn't end: %w", ctx.Err())
		}
	}
}

// workers returns the extension's workers: one, or none while it is asleep.
func (b *Browser) workers() (ids []target.ID, err error) {
	ctx, stop := b.console.within(stepTimeout)
	defer stop()
	all, err := chromedp.Targets(ctx)
	for _, about := range all {
		if about.Type == "service_worker" && strings.Contains(about.URL, b.ext) {
			ids = append(ids, about.TargetID)
		}
	}
	return ids, err
}
