package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// Who looks at one terminal of a session is told when others are made, end or are
// closed, and told once of many.
func TestFound18ViewersHearOfOtherTerminals(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	carol := attach(t, s, "carol", s.Ready.PTYID)
	_, err := carol.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	told := func() (n int) {
		for _, m := range carol.Messages() {
			if m.Type() == "terminals_changed" {
				n++
			}
		}
		return n
	}
	more := func(what string, than int) {
		t.Helper()
		must(t, carol.Await(ctx, what, func(_ []byte, messages []Message, _ error) bool {
			n := 0
			for _, m := range messages {
				if m.Type() == "terminals_changed" {
					n++
				}
			}
			return n > than
		}))
	}
	alice := s.Ready.User("alice")
	before := told()
	id, err := newTerminal(ctx, alice, s.Ready.SessionID, "")
	must(t, err)
	more("a new terminal", before)
	before = told()
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	must(t, call(ctx, http.StatusNoContent, nil, http.MethodDelete,
		fmt.Sprintf("%s/sessions/%s/ptys/%s", alice.Base, s.Ready.SessionID, id), grant, nil))
	more("a closed terminal", before)
	before = told()
	_, err = newTerminal(ctx, alice, s.Ready.SessionID, "exit 3")
	must(t, err)
	more("a terminal that has ended", before)
}

// A terminal that somebody opens is among everybody's tabs at once, without a
// click or a change of focus; one that is closed is gone.
func TestFound18TabsOfOthers(t *testing.T) {
	s := shared(t)
	bob := openWindow(t, "tabs", s.Ready.Relays[0].URL+"/#token="+s.Ready.Users["bob"].Token, 1440, 900)
	bob.untilText("status", "Connected")
	ctx := within(t)
	alice := s.Ready.User("alice")
	id, err := newTerminal(ctx, alice, s.Ready.SessionID, "")
	must(t, err)
	bob.until(fmt.Sprintf(`document.querySelector('[data-testid="tab-%s"]')`, id))
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	must(t, call(ctx, http.StatusNoContent, nil, http.MethodDelete,
		fmt.Sprintf("%s/sessions/%s/ptys/%s", alice.Base, s.Ready.SessionID, id), grant, nil))
	bob.until(fmt.Sprintf(`!document.querySelector('[data-testid="tab-%s"]')`, id))
}
