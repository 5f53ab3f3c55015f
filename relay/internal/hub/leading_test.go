package hub

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// TestFound15WhoLeads compares a leading with a list of all that has happened.
func TestFound15WhoLeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLeading()
		type known struct {
			id turn.SocketID
			candidate
		}
		var there []known // by id
		var acts []string // clients, the last one last
		var terminal size
		controller, next := protocol.UserID("usr_0"), turn.SocketID(1)
		pick := func() (known, bool) {
			if len(there) == 0 {
				return known{}, false
			}
			return rapid.SampledFrom(there).Draw(t, "socket"), true
		}
		seatsOf := func(who protocol.UserID) (own []known) {
			for _, k := range there {
				if k.user == who && !k.follows {
					own = append(own, k)
				}
			}
			return own
		}
		t.Repeat(map[string]func(*rapid.T){
			"comes": func(t *rapid.T) {
				k := known{next, candidate{
					user: protocol.UserID(fmt.Sprint("usr_", rapid.IntRange(0, 1).Draw(t, "user"))), follows: rapid.IntRange(0, 4).Draw(t, "panel") == 0,
				}}
				k.client = fmt.Sprint(k.user, rapid.IntRange(0, 3).Draw(t, "client"))
				next++
				there = append(there, k)
				l.add(k.id, k.candidate)
			},
			"goes": func(*rapid.T) {
				if k, ok := pick(); ok {
					there = slices.DeleteFunc(there, func(other known) bool { return other.id == k.id })
					l.remove(k.user, k.id)
				}
			},
			"acts": func(*rapid.T) {
				if k, ok := pick(); ok {
					l.acts(k.user, k.id)
					if !k.follows {
						acts = append(acts, k.client)
					}
				}
			},
			"wants": func(t *rapid.T) {
				if k, ok := pick(); ok {
					want := size{rapid.IntRange(1, 9).Draw(t, "cols"), 9}
					l.wants(k.user, k.id, want)
					for i := range there {
						if there[i].id == k.id && !k.follows {
							there[i].asked = want
						}
					}
				}
			},
			"control": func(t *rapid.T) {
				controller = rapid.SampledFrom([]protocol.UserID{"", protocol.AgentHolder, "usr_0", "usr_1"}).Draw(t, "controller")
			},
			"": func(t *rapid.T) {
				leader, give, _ := l.choose(controller)
				if give != (size{}) {
					terminal = give
				}
				own := seatsOf(controller)
				if len(own) == 0 {
					if leader != 0 || give != (size{}) {
						t.Fatalf("%d leads and gives %v, of nobody", leader, give)
					}
					return
				}
				best := slices.MaxFunc(own, func(a, b known) int {
					last := func(k known) int { return lastIndex(acts, k.client) }
					return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(b.id, a.id))
				})
				if leader != best.id {
					t.Fatalf("%d leads, want %d of %+v after %q", leader, best.id, own, acts)
				}
				if best.asked != (size{}) && terminal != best.asked {
					t.Fatalf("the terminal is %v, its leader wants %v", terminal, best.asked)
				}
				if again, give, fresh := l.choose(controller); again != leader || give != (size{}) || fresh {
					t.Fatalf("chosen again: %d, %v, %t", again, give, fresh)
				}
			},
		})
	})
}

func lastIndex(all []string, what string) int {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] == what {
			return i
		}
	}
	return -1
}

// What is remembered of clients is bounded, and the last ones are.
func TestFound15ActsAreBounded(t *testing.T) {
	l := newLeading()
	for i := range 10 * maxActive {
		s := candidate{user: "usr_a", client: fmt.Sprint(i)}
		l.add(turn.SocketID(i+1), s)
		l.acts(s.user, turn.SocketID(i+1))
		if i > 0 && i%2 == 0 {
			l.remove(s.user, turn.SocketID(i+1))
		}
		if len(l.acted) > maxActive {
			t.Fatalf("%d are remembered", len(l.acted))
		}
	}
	if leader, _, _ := l.choose("usr_a"); leader != 10*maxActive {
		t.Errorf("%d leads", leader)
	}
}

// TestFound15ASecondWindow: it follows, until somebody types or clicks there; when
// it goes, the first gives the size again. A panel never does.
func TestFound15ASecondWindow(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	as := func(client string, follow bool) *watcher {
		x := w.joinAs(alice, Guest{Client: client, Follow: follow, Since: at(0)})
		x.sized = true
		x.greeted()
		return x
	}
	says := func(x *watcher, m protocol.ClientMessage) { x.v.Say(m) }
	resize := func(x *watcher, cols int) {
		says(x, protocol.ClientMessage{Type: protocol.ClientResize, Cols: cols, Rows: 30})
	}
	led := func(x *watcher, want bool) {
		t.Helper()
		var m protocol.SizeLed
		if x.until(protocol.ServerSizeLed).decode(t, &m); m.Leads != want {
			t.Fatalf("told that it leads: %t", m.Leads)
		}
	}
	desk := as("desk", false)
	a := w.attached()
	wants := func(cols int) {
		t.Helper()
		if m := hears[protocol.Resize](a); m.Cols != cols || m.Term != 2 {
			t.Fatalf("%+v, want %d columns", m, cols)
		}
	}
	resize(desk, 100)
	wants(100)
	phone, panel := as("phone", false), as("panel", true)
	led(phone, false)
	led(panel, false)
	resize(phone, 40)
	resize(panel, 10)
	panel.types("p")
	resize(desk, 101)
	wants(101)

	phone.types("x")
	led(phone, true)
	led(desk, false)
	wants(40)
	resize(desk, 102)
	says(desk, protocol.ClientMessage{Type: protocol.ClientLead})
	led(desk, true)
	led(phone, false)
	wants(102)
	says(phone, protocol.ClientMessage{Type: protocol.ClientLead})
	led(desk, false)
	wants(40)

	// Gone, and back: it was the last at which somebody was.
	phone.leave()
	led(desk, true)
	wants(102)
	phone = as("phone", false)
	led(desk, false)
	resize(phone, 41)
	wants(41)
	desk.types("y")
	led(phone, false)
	wants(102)
	says(panel, protocol.ClientMessage{Type: protocol.ClientLead})
	desk.leave()
	led(phone, true)
	wants(41)

	// What others want is nothing while they have no control, and what they wanted
	// counts when they get it.
	other := w.joinAs(bob, Guest{Client: "bob's", Since: at(0)})
	other.greeted()
	resize(other, 77)
	resize(phone, 43)
	wants(43)
	a.say(protocol.Leased{Lease: protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_bob", State: protocol.LeaseHeld}})
	if m := hears[protocol.Resize](a); m.Cols != 77 || m.Term != 3 {
		t.Fatalf("%+v", m)
	}
}
