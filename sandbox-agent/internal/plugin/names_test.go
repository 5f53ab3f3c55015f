package plugin

import (
	"fmt"
	"log/slog"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

func (w *world) ended1() { w.TerminalEnded(feature.Terminal{Session: session, PTY: "pty_1"}) }

func (w *world) offer(pty protocol.PTYID, name string, port int) protocol.Kind {
	_, err := w.Register(session, pty, pluginsocket.Offer{Name: name, Port: port})
	if err == nil {
		return ok
	}
	return protocol.KindOf(err)
}

// ok stands for no error.
const ok = protocol.Kind(255)

// TestRegister: a terminal's programs register ports of their own, under names that
// nobody else has.
func TestRegister(t *testing.T) {
	w := newWorld(t)
	w.ports[1], w.ports[2], w.ports[3], w.ports[9000] = 2001, 2002, 2001, 2001
	for _, tt := range []struct {
		what string
		pty  protocol.PTYID
		name string
		port int
		want protocol.Kind
	}{
		{"its own port", "pty_1", "a", 1, ok},
		{"again", "pty_1", "a", 1, ok},
		{"another port of its", "pty_1", "a", 3, ok},
		{"a second terminal", "pty_2", "a", 2, protocol.KindConflict},
		{"another name", "pty_2", "b", 2, ok},
		{"somebody else's port", "pty_2", "c", 1, protocol.KindForbidden},
		{"the agent's port", "pty_1", "c", 9000, protocol.KindForbidden},
		{"nobody's port", "pty_1", "c", 4, protocol.KindNotFound},
		{"no terminal", "pty_3", "c", 1, protocol.KindNotFound},
		{"no port", "pty_1", "c", 0, protocol.KindInvalid},
		{"no port either", "pty_1", "c", 65536, protocol.KindInvalid},
		{"no name", "pty_1", "../x", 1, protocol.KindInvalid},
		{"no name either", "pty_1", "", 1, protocol.KindInvalid},
	} {
		if got := w.offer(tt.pty, tt.name, tt.port); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
	}
	if got := w.news.Load(); got != 4 {
		t.Errorf("those who watch heard of it %d times", got)
	}
	if got := fmt.Sprint(w.known.list(session)); got != "{[{a pty_1 3} {b pty_2 2}]}" {
		t.Error(got)
	}
	if got := fmt.Sprint(w.known.list("ses_2")); got != "{[]}" {
		t.Error(got)
	}
	delete(w.ports, 3)
	if got := w.offer("pty_2", "a", 2); got != ok {
		t.Errorf("once the port is closed: %v", got)
	}
}

// TestNamesBound: a session's plugins are bounded; those that run no more give way.
func TestNamesBound(t *testing.T) {
	w := newWorld(t)
	for i := range maxNames {
		w.ports[i+1] = 2001
		if got := w.offer("pty_1", fmt.Sprint("p", i), i+1); got != ok {
			t.Fatal(i, got)
		}
	}
	w.ports[100] = 2002
	if got := w.offer("pty_2", "more", 100); got != protocol.KindTooMany {
		t.Error(got)
	}
	delete(w.ports, 5)
	if got := w.offer("pty_2", "more", 100); got != ok {
		t.Error(got)
	}
	if n := len(w.known.list(session).Plugins); n != maxNames {
		t.Error(n)
	}
}

// TestSocketsBound: the sockets of a person are bounded, and those of all.
func TestSocketsBound(t *testing.T) {
	w := newWorld(t)
	var leave []func()
	enter := func(user protocol.UserID) error {
		l, err := w.enter(user)
		if err == nil {
			leave = append(leave, l)
		}
		return err
	}
	for range maxPerPerson {
		if err := enter(alice); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter(alice); protocol.KindOf(err) != protocol.KindTooMany {
		t.Error(err)
	}
	for i := 0; len(leave) < maxSockets; i++ {
		if err := enter(protocol.UserID(fmt.Sprint("usr_", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("usr_bob"); protocol.KindOf(err) != protocol.KindTooMany {
		t.Error(err)
	}
	for _, l := range leave {
		l()
	}
	if w.sockets != 0 || len(w.of) != 0 {
		t.Errorf("%d %v are left", w.sockets, w.of)
	}
}

// TestNames: whatever terminals register and whichever ports close, a name is that
// of the terminal that took it first, until its port closes or the terminal ends.
func TestNames(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := &world{t: t, users: map[protocol.PTYID]int{"pty_1": 2001, "pty_2": 2002, "pty_3": 2003}, ports: map[int]int{}}
		w.Plugins = New(Options{Ports: w, Terminals: w, Log: slog.New(slog.DiscardHandler)})
		ptys := []protocol.PTYID{"pty_1", "pty_2", "pty_3"}
		owner, at := map[string]protocol.PTYID{}, map[string]int{} // as it should be
		runs := func(name string) bool { return owner[name] != "" && w.ports[at[name]] == w.users[owner[name]] }
		r.Repeat(map[string]func(*rapid.T){
			"register": func(r *rapid.T) {
				pty, name, port := rapid.SampledFrom(ptys).Draw(r, "pty"), rapid.SampledFrom([]string{"a", "b"}).Draw(r, "name"), rapid.IntRange(1, 4).Draw(r, "port")
				want := ok
				switch uid, open := w.ports[port]; {
				case !open:
					want = protocol.KindNotFound
				case uid != w.users[pty]:
					want = protocol.KindForbidden
				case runs(name) && owner[name] != pty:
					want = protocol.KindConflict
				default:
					owner[name], at[name] = pty, port
				}
				if got := w.offer(pty, name, port); got != want {
					r.Fatalf("%s registers %s at %d: %v, want %v", pty, name, port, got, want)
				}
			},
			"listen": func(r *rapid.T) {
				w.ports[rapid.IntRange(1, 4).Draw(r, "port")] = w.users[rapid.SampledFrom(ptys).Draw(r, "pty")]
			},
			"close": func(r *rapid.T) { delete(w.ports, rapid.IntRange(1, 4).Draw(r, "port")) },
			"end": func(r *rapid.T) {
				pty := rapid.SampledFrom(ptys).Draw(r, "pty")
				w.TerminalEnded(feature.Terminal{Session: session, PTY: pty})
				for name := range owner {
					if owner[name] == pty {
						delete(owner, name)
					}
				}
			},
			"": func(r *rapid.T) {
				for _, name := range []string{"a", "b"} {
					if found := w.known.find(session, name) != nil; found != runs(name) {
						r.Fatalf("%s is found: %v", name, found)
					}
					if !runs(name) {
						delete(owner, name) // looked at, and forgotten
					}
				}
			},
		})
	})
}
