package e2e

import (
	"testing"
)

// link returns the address that opens a terminal in a browser.
func (s *Stack) link(name string, pty string) string {
	return s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token + "&session=" + string(s.Ready.SessionID) + "&pty=" + pty
}

// TestFound16InTheBrowser: the owner's button takes control back and the holder
// reads why; who types at a free terminal has control, and what they typed is there.
func TestFound16InTheBrowser(t *testing.T) {
	s := shared(t)
	id := string(newPTY(t, s, ""))
	alice := openWindow(t, "owner", s.link("alice", id), 1440, 900)
	alice.untilText("controller", "You have control")
	bob := openWindow(t, "holder", s.link("bob", id), 390, 844)
	bob.untilText("controller", "alice has control")
	bob.click("btn-request")
	alice.click("btn-grant-" + string(s.Ready.Users["bob"].ID))
	bob.untilText("controller", "You have control")
	alice.untilText("controller", "bob has control")
	if eval[bool](bob, `document.querySelector('[data-testid=btn-take-back]').checkVisibility()`) {
		t.Error("bob, who has control and owns nothing, may take it back")
	}
	alice.shoot("take-back")
	told := bob.notice("hint", "alice owns this session and took control back")
	alice.click("btn-take-back")
	alice.untilText("controller", "You have control")
	bob.until(told)
	bob.shoot("taken-back")

	alice.click("btn-release")
	bob.untilText("controller", "Nobody has control")
	bob.shoot("free")
	bob.typeLine("echo first-key-$((6*7))")
	bob.untilScreen("\nfirst-key-42")
	bob.untilText("controller", "You have control")
	alice.untilScreen("\nfirst-key-42")
	alice.untilText("controller", "bob has control")
}
