package console_test

import (
	"context"
	"fmt"
	"image/color"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/fairlead/fairlead/protocol/op"
)

var (
	red  = color.RGBA{0xc0, 0x20, 0x20, 0xff}
	blue = color.RGBA{0x20, 0x50, 0xc0, 0xff}
)

func demoPage() []byte { return picture(1280, 800, blue) }

// shows says in JavaScript that the picture's top is of about this colour.
func shows(c color.RGBA) string {
	return fmt.Sprintf(`((c) => c.width > 1 && [%d, %d, %d].every((v, i) => Math.abs(c.getContext('2d').getImageData(5, 5, 1, 1).data[i] - v) < 12))(document.querySelector('[data-testid=browser-picture]'))`, c.R, c.G, c.B)
}

// The sandbox's browser is watched live by whoever opens the panel, and by
// nobody whose tab is hidden.
func testLiveBrowser(t *testing.T, browser context.Context) {
	relay := newFakeRelay(t)
	carol := newTab(t, browser)
	carol.open(relay.link("carol"))
	carol.untilText("controller", "Nobody has control")
	relay.mu.Lock()
	relay.chromium.status.Error = "Chromium is missing: apt-get install chromium"
	relay.mu.Unlock()
	watchers := func(want int) {
		t.Helper()
		relay.until(t, fmt.Sprint(want, " watch"), func() bool { return relay.chromium.watchers == want })
	}
	watchers(0)
	carol.click("btn-browser")
	carol.untilText("browser-empty", "could not start: Chromium is missing")
	watchers(1)

	relay.browse(op.BrowserStatus{State: "running", URL: "https://one.example/a", Title: "One\u202e"}, picture(400, 300, red))
	carol.until(shows(red))
	carol.untilText("browser-url", "https://one.example/a")
	carol.untilText("browser-title", "One⟨U+202E⟩")
	relay.browse(op.BrowserStatus{State: "running", URL: "https://two.example/", Title: "Two"}, picture(640, 300, blue))
	carol.until(shows(blue) + ` && document.querySelector('[data-testid=browser-picture]').width === 640`)
	carol.untilText("browser-title", "Two")

	// What is no picture, or claims to be a huge one, is not drawn.
	huge := picture(8, 8, red)
	for i := range huge {
		if huge[i] == 0xff && huge[i+1] == 0xc0 {
			copy(huge[i+5:], []byte{0xff, 0xff, 0xff, 0xff})
			break
		}
	}
	relay.browse(op.BrowserStatus{State: "running", URL: "https://two.example/", Title: "Two"}, huge)
	relay.browse(op.BrowserStatus{State: "running", URL: "https://two.example/", Title: "Three"}, []byte("<svg/>"))
	carol.untilText("browser-title", "Three")
	carol.until(shows(blue))

	// Nobody watches from a hidden tab; the connection may break.
	carol.look(true)
	watchers(0)
	relay.browse(op.BrowserStatus{State: "running", URL: "https://three.example/", Title: "Three"}, picture(400, 300, red))
	carol.look(false)
	watchers(1)
	carol.until(shows(red))
	relay.cutFrames()
	relay.until(t, "the stream is opened again", func() bool { return relay.chromium.watched >= 3 })
	relay.browse(op.BrowserStatus{State: "running", URL: "https://four.example/", Title: "Four"}, picture(400, 300, blue))
	carol.until(shows(blue))

	// Another tab can be watched; who chooses the active one follows that.
	asked := func(want string) {
		t.Helper()
		relay.until(t, "tab "+want+" is asked for", func() bool { return relay.chromium.tabs[len(relay.chromium.tabs)-1] == want })
	}
	two := []op.BrowserTab{{ID: 3, URL: "https://four.example/", Title: "Four", Active: true}, {ID: 5, URL: "https://five.example/", Title: "Five\u202e"}}
	relay.browse(op.BrowserStatus{State: "running", URL: "https://four.example/", Title: "Four", Tabs: two}, picture(400, 300, red))
	carol.untilText("browser-tabs", "Five⟨U+202E⟩")
	carol.until(`document.querySelector('[data-testid=browser-tab-3]').ariaSelected === 'true'`)
	carol.click("browser-tab-5")
	asked("5")
	carol.untilText("browser-url", "https://five.example/")
	carol.until(shows(red) + ` && document.querySelector('[data-testid=browser-tab-5]').ariaSelected === 'true'`)
	carol.typing(kb.ArrowLeft)
	asked("")
	carol.untilText("browser-url", "https://four.example/")
	carol.click("browser-tab-5")
	asked("5")
	relay.browse(op.BrowserStatus{State: "running", URL: "https://four.example/", Title: "Four", Tabs: two[:1]}, picture(400, 300, blue))
	asked("") // the tab was closed
	carol.until(hidden("browser-tabs") + " && " + shows(blue))

	// Of a browser that has ended no picture stays.
	relay.browse(op.BrowserStatus{State: "stopped"}, nil)
	carol.untilText("browser-empty", "not running")
	carol.until(hidden("browser-picture"))

	// One panel at a time.
	carol.click("btn-agent-panel")
	carol.until(hidden("browser") + " && !(" + hidden("agent-panel") + ")")
	watchers(0)
	carol.run(focus("btn-agent-panel-close"))
	carol.typing(kb.Escape)
	carol.until(hidden("agent-panel"))
	carol.check()
	relay.check(t)
}
