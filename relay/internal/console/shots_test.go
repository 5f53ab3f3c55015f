package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPictures takes pictures of the page for people to look at, into the folder
// that FAIRLEAD_PICTURES names.
func TestPictures(t *testing.T) {
	dir := os.Getenv("FAIRLEAD_PICTURES")
	if dir == "" {
		t.Skip("FAIRLEAD_PICTURES names no folder")
	}
	browser := newBrowser(t)
	for _, scheme := range []string{"dark", "light"} {
		media := command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		desktop := command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1440, Height: 900, DeviceScaleFactor: 1})
		t.Run(scheme, func(t *testing.T) {
			take(t, browser, filepath.Join(dir, scheme+"-desktop"), desktop, media)
			take(t, browser, filepath.Join(dir, scheme+"-phone"), append(phone(), media)...)
		})
	}
}

const demo = "\x1b[1;32malice@sandbox\x1b[0m:\x1b[1;34m~/workspace\x1b[0m$ go test ./...\r\n" +
	"\x1b[32mok\x1b[0m  \tgithub.com/fairlead/fairlead/protocol\t0.412s\r\n" +
	"\x1b[32mok\x1b[0m  \tgithub.com/fairlead/fairlead/relay/internal/hub\t1.208s\r\n" +
	"\x1b[31mFAIL\x1b[0m\tgithub.com/fairlead/fairlead/relay/internal/replay\t0.090s\r\n" +
	"\x1b[33mwarning\x1b[0m: 1 package failed\r\n"

func take(t *testing.T, browser context.Context, prefix string, prepare ...step) {
	relay := newFakeRelay(t)
	pty := relay.pty("pty_1")
	relay.mu.Lock()
	pty.info.Command = "/bin/bash"
	started := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	relay.addRecording(pty, started, events())
	relay.addRecording(pty, started.Add(26*time.Hour), events())
	for i := range relay.recordings {
		relay.recordings[i].info.EndedAt = relay.recordings[i].info.StartedAt + 754_000
		relay.recordings[i].info.Bytes = 184_320
	}
	relay.recordings[0].info.Note = "Ended early: the disk was full"
	relay.mu.Unlock()
	relay.output(pty, strings.Repeat("compiling package after package\r\n", 3000)+strings.Repeat(demo, 6)+"\x1b[1;32malice@sandbox\x1b[0m:\x1b[1;34m~/workspace\x1b[0m$ ")
	alice, bob := newTab(t, browser, prepare...), newTab(t, browser)
	alice.open(relay.link("alice"))
	alice.untilText("controller", "You have control")
	bob.open(relay.link("bob"))
	bob.untilText("controller", "alice has control")
	alice.until(`document.querySelector('[data-testid=viewers]').ariaLabel.includes('bob')`)
	shot := func(name string) {
		t.Helper()
		alice.until(`document.getAnimations().every((a) => a.playState !== 'running' || a.effect.getComputedTiming().iterations === Infinity)`)
		alice.shot(prefix + "-" + name + ".png")
	}
	relay.output(pty, "git status\r\nOn branch main\r\nnothing to commit, working tree clean\r\n\x1b[1;32malice@sandbox\x1b[0m:\x1b[1;34m~/workspace\x1b[0m$ ")
	alice.untilScreen("nothing to commit")
	alice.focusTerminal()
	shot("1-live")
	bob.click("btn-request")
	alice.untilText("requests", "bob asks")
	alice.press(ctrl|shift, "F", "KeyF", 70)
	alice.typing("fairlead")
	alice.untilText("search-count", "of")
	shot("2-search")
	alice.eval(`document.querySelector('[data-testid=search-close]').click()`)
	alice.eval(`document.querySelector('[aria-label="Not now, bob"]').click()`)
	relay.mu.Lock()
	relay.down[relay.host()], relay.down[relay.other.Listener.Addr().String()] = true, true
	for s := range pty.sockets {
		s.drop(nil)
	}
	relay.mu.Unlock()
	alice.untilText("banner", "Reconnecting")
	alice.focusTerminal()
	alice.typing("ls -l")
	alice.until(`document.querySelector('[data-testid=banner]').innerText.includes('in 2 s')`)
	shot("3-reconnecting")
	relay.mu.Lock()
	clear(relay.down)
	relay.mu.Unlock()
	alice.until(`document.querySelector('[data-testid=banner]').hidden`)
	if strings.Contains(prefix, "phone") {
		size := func(height int64) step {
			return command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 390, Height: height, DeviceScaleFactor: 2, Mobile: true})
		}
		alice.run(size(500)) // as if its keyboard were open
		alice.until(`document.body.classList.contains('typing')`)
		shot("4-keyboard")
		alice.run(size(844))
		alice.click("btn-more")
		shot("4-menu")
	}
	alice.eval(`document.querySelector('[data-testid=btn-record]').click()`)
	alice.until(`!document.querySelector('[data-testid=rec]').hidden`)
	alice.eval(`document.querySelector('[data-testid=btn-recordings]').click()`)
	alice.untilText("recordings", "Play")
	shot("5-recordings")
	alice.click("btn-play-rec_2")
	alice.until(`document.querySelector('[data-testid=player]').innerText.includes('nothing to commit')`)
	shot("6-playback")
	alice.eval(`document.querySelector('#recordings .close').click()`)
	alice.eval(`document.querySelector('[data-testid=btn-earlier]').click()`)
	alice.untilText("earlier", "KiB")
	shot("7-earlier")
	alice.eval(`document.querySelector('#earlier .close').click()`)
	alice.eval(`document.querySelector('[data-testid=viewers]').click()`)
	relay.skip(pty, "more\r\n$ ")
	alice.untilText("hint", "too slow")
	shot("8-people")
	alice.eval(`document.querySelector('[data-testid=viewers]').click()`)
	shotsOfAgent(alice, strings.Contains(prefix, "phone"), shot)
	shotsOfApprovals(t, browser, prefix, prepare...)
	shotsOfFiles(t, browser, prefix, prepare...)
	shotsOfPanels(t, browser, prefix, prepare...)
	shotOfSignIn(t, browser, prefix+"-10-sign-in.png", prepare...)
	alice.check()
	relay.check(t)
}

func events() string {
	var out strings.Builder
	for i, line := range strings.SplitAfter(strings.Repeat(demo, 3)+"$ git status\r\nnothing to commit, working tree clean\r\n$ ", "\n") {
		fmt.Fprintf(&out, "[%.2f,\"o\",%s]\n", float64(i)*0.05, quoted(line))
	}
	fmt.Fprintf(&out, "[60,\"o\",\"\"]\n")
	return out.String()
}

// quoted is a JSON string.
func quoted(text string) string {
	return `"` + strings.NewReplacer("\x1b", `\u001b`, "\r", `\r`, "\n", `\n`, "\t", `\t`, `"`, `\"`).Replace(text) + `"`
}

func (b *tab) shot(path string) {
	b.Helper()
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		b.Fatal(err)
	}
}
