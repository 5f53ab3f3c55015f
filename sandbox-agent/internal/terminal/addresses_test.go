package terminal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/linkfinder"
)

var someShell = &op.Shell{Provider: op.PlainShell, InitialCommand: "login"}

// A shellRig is a shell's terminal over fakes.
type shellRig struct {
	*fakeHost
	*rig
	info protocol.PTYInfo
}

// shellBubble runs f with a shell that has started.
func shellBubble(t *testing.T, f func(t *testing.T, s *shellRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shellRig{fakeHost: newFakeHost(t)}
		s.starts(t)
		f(t, s)
	})
}

// starts starts the shell.
func (s *shellRig) starts(t *testing.T) {
	t.Helper()
	info, err := s.Create(t.Context(), session, someShell.PTYID(session), op.PTYCreate{CreatorID: alice, Shell: someShell})
	must(t, err)
	term, err := s.Get(session, info.ID)
	must(t, err)
	last := s.launched[len(s.launched)-1]
	s.info, s.rig = info, &rig{Terminal: term, dev: last.dev, proc: last.proc}
}

// addresses returns those that wait for a viewer, who takes all that does.
func (v *viewer) addresses() (all []protocol.Address) {
	v.t.Helper()
	synctest.Wait()
	for {
		m, err := v.Poll()
		if m == nil || err != nil {
			return all
		}
		if a, ok := m.(protocol.Address); ok {
			all = append(all, a)
		}
	}
}

// TestAddresses: what a shell prints is searched whoever watches; each address is
// told once, with its hint, also to who comes later, and to nobody of other
// terminals.
func TestAddresses(t *testing.T) {
	shellBubble(t, func(t *testing.T, s *shellRig) {
		s.print("Open this URL: https://example.com/login?code=\x1b[1m1\x1b[0m or wait\r\n")
		s.print("docs: https://example.com/docs.\r\n\r\n")
		time.Sleep(linkfinder.HintWait)
		want := []protocol.Address{{URL: "https://example.com/login?code=1", AutoOpen: true}, {URL: "https://example.com/docs", AutoOpen: true}}
		v := s.attach(t, nil)
		if got := v.addresses(); !slices.Equal(got, want) {
			t.Errorf("at the start: %+v", got)
		}
		s.print("https://example.com/login?code=1 again, then https://example.com/b \r\n\r\n")
		if got := v.addresses(); !slices.Equal(got, []protocol.Address{{URL: "https://example.com/b", AutoOpen: true}}) {
			t.Errorf("later: %+v", got)
		}
		h := s.create(t, "pty_other")
		s.launched[len(s.launched)-1].dev.output <- []byte("Open this URL: https://example.com/a b\r\n")
		time.Sleep(time.Second)
		other, err := s.Get(session, h.ID)
		must(t, err)
		if got := attach(t, other, nil).addresses(); len(got) > 0 {
			t.Errorf("no shell: %+v", got)
		}
	})
}

// TestAddressWaits: weakness 13. An address comes with a hint that stands behind it.
func TestAddressWaits(t *testing.T) {
	shellBubble(t, func(t *testing.T, s *shellRig) {
		v := s.attach(t, nil)
		s.print("https://example.com/a \r\n\r\n")
		if got := v.addresses(); len(got) > 0 {
			t.Errorf("at once: %+v", got)
		}
		time.Sleep(linkfinder.HintWait - 1)
		s.print("Browser didn't open")
		if got := v.addresses(); !slices.Equal(got, []protocol.Address{{URL: "https://example.com/a", AutoOpen: true}}) {
			t.Errorf("with its hint: %+v", got)
		}
	})
	shellBubble(t, func(t *testing.T, s *shellRig) {
		v := s.attach(t, nil)
		s.print("https://example.com/authorize?\r\ncode=abc")
		time.Sleep(linkfinder.HintWait)
		if got := v.addresses(); !slices.Equal(got, []protocol.Address{{URL: "https://example.com/authorize?code=abc"}}) {
			t.Errorf("without one: %+v", got)
		}
	})
}

// TestAddressAtTheEnd: what is printed last is found before the terminal's end,
// behind which nothing comes.
func TestAddressAtTheEnd(t *testing.T) {
	shellBubble(t, func(t *testing.T, s *shellRig) {
		v := s.attach(t, nil)
		s.print("https://example.com/last")
		s.fakeHost.end(0)
		want[protocol.Address](v)
		want[protocol.Data](v)
		want[protocol.Exited](v)
	})
}

// TestAddressWithASecret: what is masked is found masked, and an address that turns
// out to have a secret in it is told to nobody any more.
func TestAddressWithASecret(t *testing.T) {
	shellBubble(t, func(t *testing.T, s *shellRig) {
		v := s.attach(t, nil)
		s.print("Open this URL: https://e.com/?t=" + secretA + " now, or https://e.com/b now\r\n")
		if got := v.addresses(); len(got) != 2 {
			t.Fatalf("found %+v", got)
		}
		s.SetSecrets(compile(t, secretA), []string{secretA})
		time.Sleep(time.Second)
		for who, got := range map[string][]protocol.Address{"there": v.addresses(), "new": s.attach(t, nil).addresses()} {
			if len(got) == 0 || slices.ContainsFunc(got, func(m protocol.Address) bool { return strings.Contains(m.URL, secretA) }) {
				t.Errorf("who is %s is told %+v", who, got)
			}
		}
		s.print("\r\nhttps://e.com/?u=" + secretA + " now\r\n")
		time.Sleep(time.Second)
		for _, m := range v.addresses() {
			if strings.Contains(m.URL, secretA) {
				t.Errorf("told %+v", m)
			}
		}
	})
}

// TestAddressesAreBounded: a program that prints addresses for ever fills nothing.
func TestAddressesAreBounded(t *testing.T) {
	shellBubble(t, func(t *testing.T, s *shellRig) {
		for i := range 200 {
			s.print(fmt.Sprintf("Open this URL: https://example.com/%d now\r\n", i))
			time.Sleep(time.Second)
		}
		got := s.attach(t, nil).addresses()
		if len(got) != 32 || got[31].URL != "https://example.com/199" {
			t.Errorf("%d: %+v", len(got), got)
		}
	})
}

// TestEndSeen: weakness 12. A terminal's end is seen by whoever watches, or on the
// first stream after somebody has asked, not by a relay that nobody watches at.
func TestEndSeen(t *testing.T) {
	shellBubble(t, func(t *testing.T, s *shellRig) {
		v := s.attach(t, nil)
		v.Audience(protocol.Audience{Sockets: 1})
		v.Audience(protocol.Audience{Sockets: 0})
		s.print("last words")
		s.fakeHost.end(0)
		for _, asked := range []bool{false, true} {
			v := s.attach(t, nil)
			want[protocol.Data](v)
			want[protocol.Exited](v)
			if s.EndSeen() != asked {
				t.Errorf("asked before: %t, seen: %t", asked, !asked)
			}
		}
	})
	shellBubble(t, func(t *testing.T, s *shellRig) {
		s.attach(t, nil).Audience(protocol.Audience{Sockets: 1})
		s.fakeHost.end(0)
		if !s.EndSeen() {
			t.Error("somebody watches")
		}
	})
}

// TestShellPlanned: what runs is an argument vector; folders are below the
// workspace.
func TestShellPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHost(t)
		for _, c := range []struct {
			shell op.Shell
			argv  []string
			line  string
		}{
			{op.Shell{Provider: "claude"}, []string{"bash", "-c", "claude"}, "claude"},
			{op.Shell{Provider: "cursor", SessionID: "a", HasSession: true}, []string{"bash", "-c", `cursor-agent --resume="$1"`, "bash", "a"}, "cursor-agent"},
			{op.Shell{Provider: "claude", SessionID: "a:b", HasSession: true}, []string{"bash", "-c", `claude --resume "$1" || claude`, "bash", "a:b"}, "claude"},
			{op.Shell{Provider: "claude", InitialCommand: "echo '$(id)'"}, []string{"bash", "-c", "echo '$(id)'"}, "echo '$(id)'"},
			{op.Shell{Provider: op.PlainShell, ProjectPath: h.config.Workspace}, []string{h.config.Shell, "-l"}, h.config.Shell},
		} {
			info, err := h.Create(t.Context(), session, c.shell.PTYID(session), op.PTYCreate{Shell: &c.shell})
			must(t, err)
			plan := h.plans[len(h.plans)-1]
			if !slices.Equal(plan.Argv, c.argv) || plan.Dir != h.config.Workspace || info.Command != c.line || !slices.Contains(plan.Env, "FORCE_COLOR=3") {
				t.Errorf("%+v: %q in %s as %q", c.shell, plan.Argv, plan.Dir, info.Command)
			}
		}
		for _, path := range []string{"/", "/etc", "..", "nowhere", "$(id)", "a';id;'", h.config.Workspace + "/../.."} {
			shell := op.Shell{Provider: "claude", ProjectPath: path}
			_, err := h.Create(t.Context(), session, shell.PTYID(session), op.PTYCreate{Shell: &shell})
			if protocol.KindOf(err) != protocol.KindInvalid || err.Error() != op.ShellBadPath {
				t.Errorf("in %q: %v", path, err)
			}
		}
	})
}
