package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// sized opens a terminal for a user as a client with a name, which may follow.
func sized(ctx context.Context, t *testing.T, s *Stack, name string, id protocol.PTYID, query string) *Terminal {
	t.Helper()
	user := s.Ready.User(name)
	grant, err := user.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket, err := user.Ticket(ctx, grant, s.Ready.SessionID, id)
	must(t, err)
	ticket.URL += "?" + query
	term, err := Dial(ctx, ticket, user.Base)
	must(t, err)
	t.Cleanup(term.Close)
	_, err = term.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	return term
}

// widths returns the columns of all the sizes that a viewer was told, in order.
func widths(messages []Message) (cols []int) {
	for _, m := range messages {
		if n, ok := m["cols"].(float64); ok && m.Type() == protocol.ServerResized {
			cols = append(cols, int(n))
		}
	}
	return cols
}

// TestFound15ASecondWindowFollows: her phone and a panel don't resize the terminal
// of who controls it, until she types or clicks there; when the leading window
// goes, the next one's size is back. Bob, who watches, sees each size once.
func TestFound15ASecondWindowFollows(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	id := newPTY(t, s, shell)
	desk := sized(ctx, t, s, "alice", id, "client=desk")
	_, err := desk.ExpectMessage(ctx, protocol.ServerControlState, controller(s.Ready.User("alice").ID))
	must(t, err)
	bob := sized(ctx, t, s, "bob", id, "client=bob")
	resize := func(term *Terminal, cols int) {
		t.Helper()
		must(t, term.Say(ctx, Message{"type": "resize", "cols": cols, "rows": 30}))
	}
	seen := func(want ...int) {
		t.Helper()
		must(t, bob.Await(ctx, fmt.Sprint("the sizes ", want), func(_ []byte, messages []Message, _ error) bool {
			return len(widths(messages)) >= len(want)
		}))
		if got := widths(bob.Messages()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("the terminal was %v columns wide, want %v", got, want)
		}
	}
	resize(desk, 100)
	seen(100)
	phone := sized(ctx, t, s, "alice", id, "client=phone")
	panel := sized(ctx, t, s, "alice", id, "client=panel&size=follow")
	resize(phone, 40)
	resize(panel, 20)
	resize(bob, 60)
	must(t, panel.Type(ctx, "panel "))
	must(t, panel.Say(ctx, Message{"type": "lead"}))
	must(t, bob.Expect(ctx, "panel "))
	for name, term := range map[string]*Terminal{"phone": phone, "panel": panel} {
		if m, err := term.ExpectMessage(ctx, protocol.ServerSizeLed, nil); err != nil || m["leads"] != false {
			t.Errorf("the %s is told %v, %v", name, m, err)
		}
	}
	resize(desk, 101)
	seen(100, 101)

	must(t, phone.Type(ctx, "typed"))
	seen(100, 101, 40)
	must(t, desk.Say(ctx, Message{"type": "lead"})) // a click
	seen(100, 101, 40, 101)
	must(t, phone.Type(ctx, "typed"))
	seen(100, 101, 40, 101, 40)
	phone.Close()
	seen(100, 101, 40, 101, 40, 101)
	desk.Close()
	must(t, panel.Type(ctx, "alone"))
	must(t, bob.Expect(ctx, "alone"))
	seen(100, 101, 40, 101, 40, 101)
}

// columns is how wide a window says that the terminal is.
func (w *window) columns() int {
	w.t.Helper()
	n, _ := strconv.Atoi(strings.Fields(eval[string](w, `document.querySelector('#detail').textContent`) + " 0")[0])
	return n
}

// TestFound15APhoneBesideTheDesk: the same in browsers. What the phone shows of a
// terminal that is too wide for it fits, or can be scrolled to.
func TestFound15APhoneBesideTheDesk(t *testing.T) {
	s := shared(t)
	id := string(newPTY(t, s, ""))
	desk := openWindow(t, "desk", s.link("alice", id), 1440, 900)
	desk.untilText("controller", "You have control")
	desk.typeLine("echo wide-$((6*7))")
	desk.untilScreen("\nwide-42")
	wide := desk.columns()
	if wide < 100 {
		t.Fatalf("%d columns on a desk", wide)
	}
	phone := openWindow(t, "phone", s.link("alice", id), 390, 844)
	phone.untilText("controller", "You have control")
	phone.untilScreen("\nwide-42")
	phone.until(`document.querySelector('#detail').textContent.includes('sized by your other window')`)
	desk.typeLine("echo still-$((6*7))")
	phone.untilScreen("\nstill-42")
	if now := [2]int{desk.columns(), phone.columns()}; now != [2]int{wide, wide} {
		t.Errorf("the desk says %d columns, the phone %d, and it was %d", now[0], now[1], wide)
	}
	phone.until(`(() => {
		const host = document.querySelector('.host:not([hidden])'), screen = host.querySelector('.xterm-screen');
		return screen.offsetWidth <= host.clientWidth || host.scrollWidth >= screen.offsetWidth && getComputedStyle(host).overflowX !== 'hidden';
	})()`)
	phone.shoot("follows")
	desk.shoot("leads")

	phone.typeLine("echo narrow-$((6*7))")
	phone.untilScreen("\nnarrow-42")
	phone.until(`!document.querySelector('#detail').textContent.includes('other window')`)
	narrow := phone.columns()
	desk.until(fmt.Sprintf(`document.querySelector('#detail').textContent.startsWith('%d ')`, narrow))
	if narrow >= wide {
		t.Errorf("%d columns on a phone", narrow)
	}
	phone.shoot("leads")
	desk.shoot("follows")
	phone.run(chromedp.Navigate("about:blank"))
	desk.until(fmt.Sprintf(`document.querySelector('#detail').textContent.startsWith('%d ')`, wide))
}
