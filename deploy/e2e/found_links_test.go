package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// A link of somebody else, opened in a tab that is somebody's, asks before it
// changes who one is (a login by another's link), whether the page is loaded
// with it or is there already.
func TestFound04SomebodyElsesLinkAsks(t *testing.T) {
	s := shared(t)
	link := func(name string) string { return s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token }
	w := openWindow(t, "links", link("bob"), 1440, 900)
	w.untilText("me", "bob")
	w.untilText("status", "Connected")

	// In a page that is there, by its address bar or by whoever has opened it.
	w.follow(link("carol"))
	w.untilText("person", "carol")
	w.untilText("person", "bob")
	w.until(`!location.href.includes("token")`)
	w.shoot("asked")
	if focus := eval[string](w, `document.activeElement.dataset.testid`); focus != "person-no" {
		t.Errorf("the focus is on %q: a key that was meant for the terminal must not agree", focus)
	}
	if !eval[bool](w, tokenIs(s, "bob")) {
		t.Error("the tab has another token before anything was agreed to")
	}
	w.click("person-no")
	w.until(`!document.querySelector('[data-testid=person]').open`)
	w.untilText("me", "bob")

	// Loaded anew with the link: the same tab, another page.
	w.run(chromedp.Navigate("about:blank"))
	w.run(chromedp.Navigate(link("carol")))
	w.untilText("person", "carol")
	w.click("person-no")
	w.untilText("me", "bob")
	w.untilText("status", "Connected")

	// A link that is worth nothing changes nothing, and says so.
	w.follow(s.Ready.Relays[0].URL + "/#token=ut_worthless")
	w.untilText("hint", "not valid")
	w.untilText("me", "bob")

	// One's own link goes without a question; who agrees becomes the other one.
	w.follow(link("bob"))
	w.untilText("status", "Connected")
	w.follow(link("carol"))
	w.click("person-yes")
	w.untilText("me", "carol")
	w.until(tokenIs(s, "carol"))
}

// A tab keeps asking when the token it has is worth nothing any more.
func TestFound04AsksAfterTheTokenIsOver(t *testing.T) {
	s := shared(t)
	link := func(name string) string { return s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token }
	w := openWindow(t, "links", link("bob"), 390, 844)
	w.untilText("me", "bob")
	w.shoot("phone")
	eval[any](w, `(sessionStorage.setItem("fairlead.token", "ut_over"), null)`)
	w.run(chromedp.Navigate("about:blank"))
	w.run(chromedp.Navigate(link("carol")))
	w.untilText("person", "bob")
	w.shoot("phone-asked")
	w.click("person-yes")
	w.untilText("me", "carol")
}

// follow opens a link in the page, as one that is typed or pasted.
func (w *window) follow(url string) {
	w.t.Helper()
	eval[any](w, fmt.Sprintf(`(location.href = %q, null)`, url))
}

func tokenIs(s *Stack, user string) string {
	return fmt.Sprintf(`sessionStorage.getItem("fairlead.token") === %q`, s.Ready.Users[user].Token)
}
