package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// TestPluginPageInTheConsole: a plugin's tab comes by itself, and its page, which is
// on a host of its own, is let in inside a frame, where a browser sends no cookies
// but those of that frame.
func TestPluginPageInTheConsole(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	dir := workspace(t, s.Ready.Sandboxes[0].PID)
	install(t, dir, "webapp")
	install(t, dir, "sandbox-agent")
	w := openWindow(t, "alice", linkTo(s, "alice", s.Ready.PTYID), 1280, 800)
	w.until(`document.querySelector('[data-testid=status]')?.innerText.includes('Connected')`)
	_, port := startPlugin(ctx, t, s, "page_of_mine")
	w.untilText("tab-plugin:page_of_mine", "page_of_mine")
	w.click("tab-plugin:page_of_mine")
	w.until(`document.querySelector('[data-testid="page-page_of_mine"]')?.checkVisibility()`)
	page := func() (found *target.Info) {
		w.run(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			all, err := chromedp.Targets(ctx)
			for _, one := range all {
				if one.Type == "iframe" && strings.Contains(one.URL, ".preview.localhost:") {
					found = one
				}
			}
			return err
		}))
		return found
	}
	var frame *target.Info
	until(t, patience, func() bool {
		frame = page()
		return frame != nil
	})
	inside, stop := chromedp.NewContext(w.ctx, chromedp.WithTargetID(frame.TargetID))
	defer stop()
	in := &window{t: t, name: "the page", ctx: inside}
	in.until(`document.title === 'runs' && document.querySelector('#p').innerText === 'from the sandbox, echoed ping'`)
	t.Logf("the page behind port %d is shown at %s", port, frame.URL)
	w.shoot("plugin-page")
}
