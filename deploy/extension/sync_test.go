package extension_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A person's way: she signs in, pairs, adds the site in front, and from then on what
// changes there is in the sandbox; a worker that dies costs nothing; what she removes
// goes, and so does all of it when she stops.
func TestSync(t *testing.T) {
	for _, size := range sizes {
		t.Run(size.name, func(t *testing.T) {
			r := newSyncRig(t, size.width, size.height, "sync")
			p := r.popup
			p.untilText("status", "Signed out")
			p.shoot("signed-out")
			p.axe("signed out")
			p.until(fmt.Sprintf(`(document.querySelector(%q).focus(), document.activeElement?.dataset.testid === 'link')`, selector("link")))
			p.types("https://elsewhere.example/#token=ut_alice\r")
			p.untilText("problem", "was not built for")
			p.types(r.sink.relay.URL + "/#token=ut_alice&session=ses_1\r")
			p.untilText("pair", "Whoever uses that browser is you")
			p.until(`document.querySelector('[data-testid=session]').options.length === 2 && document.querySelector('[data-testid=session]').value === 'ses_1'`)
			p.shoot("to-pair")
			p.axe("to pair")
			p.click("btn-pair")
			p.untilText("paired", "Demo, fingerprint")
			r.sink.do(func() {
				if got := eval[string](p, `document.querySelector('[data-testid=fingerprint]').innerText`); got != r.print || !slices.Equal(r.ops, []string{"sync.pair begin", "sync.pair finish"}) {
					t.Errorf("the fingerprint is %q, the sandbox has %q by %v", got, r.print, r.ops)
				}
			})
			p.untilText("this-why", "Open a site in a tab")

			shop := r.visit("host=1; HttpOnly; Path=/", "all=2; Domain=site.localhost; Max-Age=3600; SameSite=Strict", "part=3; Secure; Partitioned; SameSite=None; Path=/")
			front(t, shop)
			front(t, p)
			p.until(`document.querySelector('[data-testid=site]').value === 'site.localhost'`)
			p.shoot("paired")
			p.click("btn-add")
			r.has(t, "all", "host")
			r.exactly()
			p.untilText("list", "2 cookies")
			p.untilText("last", "2 cookies sent · 2 written")
			p.untilText("notes", "Stays here: 1 cookie, partitioned")
			p.untilText("status", "1 site kept signed in")
			p.shoot("sending")
			p.axe("sending")

			// Changes in a row are one push, two seconds after the last at the soonest.
			shop.run(chromedp.Navigate(r.setting("b=1", "c=1", "d=1; Max-Age=1000")))
			r.has(t, "all", "b", "c", "d", "host")
			r.kill()
			shop.run(chromedp.Navigate(r.setting("b=; Max-Age=0", "c=; Max-Age=0")))
			r.has(t, "all", "d", "host")
			r.sink.do(func() {
				if len(r.pushed) != 3 || r.at[1].Sub(r.at[0]) < 1900*time.Millisecond {
					t.Errorf("%d pushes, at %v", len(r.pushed), r.at)
				}
			})

			p.click("btn-remove")
			r.has(t)
			p.untilHidden("list")
			shop.run(chromedp.Navigate(r.setting("e=1")))
			r.secrets()
			p.click("btn-stop")
			p.untilText("status", "Not paired")
			r.sink.do(func() {
				if r.ops[len(r.ops)-1] != "sync.unpair " || len(r.pushed) != 4 {
					t.Errorf("stopped by %v, after %d pushes", r.ops, len(r.pushed))
				}
			})
			if kept := later[string](p, `chrome.storage.local.get(null).then(JSON.stringify)`); strings.Contains(kept, syncAddress) {
				t.Errorf("kept is %s", kept)
			}
			p.check()
		})
	}
}

// exactly checks how the site's cookies were sent.
func (r *syncRig) exactly() {
	r.Helper()
	r.sink.do(func() {
		list := r.pushed[len(r.pushed)-1].Cookies
		slices.SortFunc(list, func(a, b seal.Cookie) int { return strings.Compare(a.Name, b.Name) })
		all, host := list[0], list[1]
		if want := (seal.Cookie{HostKey: "shop.site.localhost", Name: "host", Value: "1", Path: "/", HTTPOnly: 1, Priority: 1, SameSite: -1, SourcePort: -1}); host != want {
			r.Errorf("the host's own is %+v", host)
		}
		lives := time.Until(all.Expires.Time())
		all.Expires = 0
		if want := (seal.Cookie{HostKey: ".site.localhost", Name: "all", Value: "2", Path: "/", HasExpires: 1, Persistent: 1, Priority: 1, SameSite: 2, SourcePort: -1}); all != want || lives > time.Hour || lives < 50*time.Minute {
			r.Errorf("the domain's is %+v, for %v", all, lives)
		}
	})
}

// secrets looks for them where the extension keeps things.
func (r *syncRig) secrets() {
	r.Helper()
	kept := later[string](r.popup, `chrome.storage.local.get(null).then(JSON.stringify)`)
	for _, secret := range []string{"ut_alice", `"value"`, "code"} {
		if strings.Contains(kept, secret) {
			r.Errorf("%q is in %s", secret, kept)
		}
	}
	about := later[string](r.popup, `new Promise((resolve) => {
		const request = indexedDB.open('sync');
		request.onsuccess = () => request.result.transaction('keys').objectStore('keys').get('key').onsuccess = async ({target}) => {
			request.result.close();
			const {key} = target.result;
			resolve([key.extractable, key.usages.join(), await crypto.subtle.exportKey('raw', key).then(() => 'read', (e) => e.name)].join(' '));
		};
	})`)
	if about != "false encrypt InvalidAccessError" {
		r.Errorf("the key is %q", about)
	}
	if shown := eval[string](r.popup, `document.documentElement.outerHTML`); strings.Contains(shown, syncAddress) || strings.Contains(shown, "ut_alice") {
		r.Error("the popup has a secret")
	}
}

// What is refused is said in plain words, and tried again where that may help: by
// itself, or when the person asks. A pairing that has ended is ended here.
func TestSyncRefused(t *testing.T) {
	r := newSyncRig(t, 390, 844, "panel", "sync")
	p := r.popup
	later[any](p, fmt.Sprintf(`chrome.storage.session.set({link: {origin: %q, token: 'ut_alice', session: 'ses_1'}})`, r.sink.relay.URL)) // as the panel does
	p.untilText("pair", "Whoever")
	p.until(`!document.querySelector('[data-testid=btn-pair]').disabled`) // her sandboxes are known
	p.click("btn-pair")
	p.untilText("paired", "Demo")
	r.sink.do(func() { r.refuse = http.StatusServiceUnavailable })
	shop := r.visit("a=1")
	front(t, shop)
	front(t, p)
	p.click("btn-add")
	p.untilText("problem", "isn’t connected. It is tried again")
	p.untilText("status", "Not sent")
	p.shoot("refused")
	p.axe("refused")
	r.alarms("sync")
	r.kill() // and the alarm, or the popup, brings the next one
	r.sink.do(func() { r.refuse = 0 })
	r.has(t, "a")
	p.untilHidden("problem")
	r.alarms("")
	for _, status := range []int{http.StatusForbidden, http.StatusTemporaryRedirect, http.StatusNotFound} {
		r.sink.do(func() { r.refuse = status })
		p.click("btn-send")
		p.untilText("problem", map[int]string{http.StatusForbidden: "--extension-ids", http.StatusTemporaryRedirect: "The sandbox refused the push", http.StatusNotFound: "Stop, and pair again"}[status])
	}
	// The token is over: it can't be ended there, and can be forgotten here.
	later[any](p, fmt.Sprintf(`chrome.storage.session.set({link: {origin: %q, token: 'ut_old', session: null}})`, r.sink.relay.URL))
	p.click("btn-stop")
	p.untilText("problem", "sign-in is over")
	p.click("btn-forget")
	p.untilHidden("paired")
	p.check()
}

// alarms waits until these alarms, and no others, bring a worker that isn't there.
func (r *syncRig) alarms(names string) {
	r.Helper()
	for ctx := patience(r.TB); later[string](r.popup, `chrome.alarms.getAll().then((all) => all.map((a) => a.name).join())`) != names; {
		if ctx.Err() != nil {
			r.Fatalf("the alarms are never %q", names)
		}
	}
}

// Chrome asks the person for a site's patterns, as the popup does at a click. (It is the
// question that nobody answers here; what the manifest doesn't have is refused at once.)
func TestSyncAsks(t *testing.T) {
	r := newSyncRig(t, 390, 844, "sync")
	for pattern, want := range map[string]string{
		"*://*.other.example/*": "asks", "*://127.0.0.1/*": "asks", "*://localhost/*": "asks", "*://[::1]/*": "asks", "file:///*": "refused",
	} {
		eval[any](r.popup, fmt.Sprintf(`(window.said = '', document.body.onclick = () => {
			const asked = chrome.permissions.request({origins: [%q]}).then(() => 'answered', () => 'refused');
			Promise.race([asked, new Promise((resolve) => setTimeout(() => resolve('asks'), 700))]).then((said) => window.said = said);
		}, null)`, pattern))
		r.popup.click("status")
		r.popup.until(`window.said !== ''`)
		if said := eval[string](r.popup, `window.said`); said != want {
			t.Errorf("%s: Chrome %s, want %s", pattern, said, want)
		}
	}
}

func withSync(o *extension.Options) { o.Parts = append(o.Parts, "sync") }

// With all parts the popup leads from one page to the other.
func TestSyncBesidePages(t *testing.T) {
	r := newSyncRig(t, 390, 844, "panel", "sync")
	r.popup.untilText("status", "Signed out")
	r.popup.until(`document.querySelector('[data-testid=btn-panel]').checkVisibility() && !document.querySelector('[data-testid=link-pages]').checkVisibility()`)
	p := newPlatform(t).rig(t, t.TempDir(), withSync)
	p.popup.shoot("pages")
	p.popup.click("link-sync")
	p.popup.untilText("status", "Signed out")
	p.popup.shoot("sync")
	p.popup.click("link-pages")
	p.popup.untilText("status", "Nothing is shared")
	p.popup.check()
}
