package terminal

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/shell"
)

// elsewhere is a program of another terminal.
var elsewhere = arbiter.Typist{PTY: "pty_other"}

// shells runs f in each shell that tells when a command is done.
func shells(t *testing.T, f func(t *testing.T, h *Host, id protocol.PTYID)) {
	for _, name := range []string{"bash", "zsh"} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skip("no " + name + " here")
			}
			h := realHost(t, IsolationNone)
			h.config.Shell = path
			info, err := h.Create(t.Context(), session, "", op.PTYCreate{})
			if err != nil {
				t.Fatal(err)
			}
			must(t, h.Share(session, info.ID, protocol.ShareSession))
			f(t, h, info.ID)
		})
	}
}

// runs runs a command, as soon as the shell is there, however slow it is.
func runs(t *testing.T, h *Host, id protocol.PTYID, by arbiter.Typist, command string) (shell.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		r, err := h.Run(ctx, session, id, by, command)
		if slices.Contains([]error{shell.ErrNoPrompts, shell.ErrNotAtPrompt, shell.ErrNoPaste}, err) && ctx.Err() == nil { // it begins, or goes on
			<-time.After(10 * time.Millisecond)
			continue
		}
		return r, err
	}
}

func TestRun(t *testing.T) {
	shells(t, func(t *testing.T, h *Host, id protocol.PTYID) {
		long := strings.Repeat("x", 200)
		for _, tt := range []struct {
			command, output string
			code            int
		}{
			{"echo hello", "hello\n", 0},
			{"(exit 7)", "", 7},
			{"false", "", 1},
			{"printf 'no end'", "no end\n", 0},
			{"echo; echo a; echo; echo b; echo", "\na\n\nb\n", 0},
			{"echo " + long, long + "\n", 0},
			{"printf '1%%\\r100%%\\n\\033[31mred\\033[0m\\n'", "100%\nred\n", 0},
			{"echo 世界; echo e\u0301", "世界\ne\u0301\n", 0},
			{"clear; echo after", "after\n", 0},
			{"for i in 1 2\ndo\n\techo $i\ndone", "1\n2\n", 0},
			{"cd /tmp; pwd", "/tmp\n", 0},
			{"sh -c 'kill -9 $$'", "", 137},
		} {
			r, err := runs(t, h, id, elsewhere, tt.command)
			output := r.Output
			if tt.code == 137 { // shells have a word to say
				output = ""
			}
			if err != nil || output != tt.output || r.ExitCode != tt.code || r.Truncated {
				t.Errorf("%q: %+v, %v", tt.command, r, err)
			}
		}
		r, err := runs(t, h, id, elsewhere, "seq 1 100000")
		if err != nil || !r.Truncated || len(r.Output) > shell.MaxOutput || len(r.Output) < shell.MaxOutput-10 ||
			!strings.HasSuffix(r.Output, "\n99999\n100000\n") {
			t.Errorf("%d bytes, ends %q, %v", len(r.Output), r.Output[max(0, len(r.Output)-20):], err)
		}
		lines := strings.Split(r.Output, "\n")
		for i := 1; i < len(lines)-1; i++ {
			if len(lines[i]) < len(lines[i-1]) {
				t.Fatalf("%q follows %q", lines[i], lines[i-1])
			}
		}
		if r, err = runs(t, h, id, elsewhere, "seq 1 3000"); err != nil || r.Truncated || strings.Count(r.Output, "\n") != 3000 {
			t.Errorf("%d lines, %v", strings.Count(r.Output, "\n"), err)
		}
	})
}

// wantRefusal checks that a command is refused with an error of kind that says
// words.
func wantRefusal(t *testing.T, err error, kind protocol.Kind, words string) {
	t.Helper()
	if protocol.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v; want kind %s that says %q", err, kind, words)
	}
}

// TestRunRefused: nothing is typed where it would not be a command, or isn't
// allowed.
func TestRunRefused(t *testing.T) {
	h := realHost(t, IsolationNone)
	u := sitDown(t, h, op.PTYCreate{})
	u.expect(`m[$#] $`)
	me := arbiter.Typist{Grant: grantOf(alice, "gr_1", time.Minute, protocol.CapControl)}
	run := func(by arbiter.Typist, command string) error {
		_, err := h.Run(t.Context(), session, u.id, by, command)
		return err
	}
	wantRefusal(t, run(elsewhere, "echo never"), protocol.KindForbidden, "not open")
	must(t, h.Share(session, u.id, protocol.ShareSession))
	wantRefusal(t, run(elsewhere, "echo never"), protocol.KindConflict, string(alice)+" has control")
	other := arbiter.Typist{Grant: grantOf(bob, "gr_2", time.Minute, protocol.CapControl)}
	wantRefusal(t, run(other, "echo never"), protocol.KindConflict, string(alice)+" has control")
	wantRefusal(t, run(arbiter.Typist{Grant: grantOf(bob, "gr_2", time.Minute)}, "echo never"), protocol.KindForbidden, "control")
	wantRefusal(t, run(arbiter.Typist{PTY: u.id}, "echo never"), protocol.KindForbidden, "its own terminal")
	wantRefusal(t, run(me, " \n "), protocol.KindInvalid, "no command")
	wantRefusal(t, run(me, "echo \x03never"), protocol.KindInvalid, "controls")
	wantRefusal(t, run(me, strings.Repeat("x", shell.MaxCommand+1)), protocol.KindTooLarge, "over")
	<-time.After(20 * time.Millisecond) // of files, clocks are coarse
	u.enter("half")
	u.expect("half")
	wantRefusal(t, run(me, "echo never"), protocol.KindConflict, "somebody has typed")
	u.enter("\x15\r")
	u.expect(`(?s)m[$#] $`)
	if r, err := h.Run(t.Context(), session, u.id, me, "echo yes"); err != nil || r.Output != "yes\n" {
		t.Errorf("%+v, %v", r, err)
	}
	u.expect(`(?s)yes\r\n.*m[$#] $`)
	u.enter("echo go'ing'; sleep 100\r")
	u.expect("\rgoing\r\n") // so that the shell's line editor is done
	wantRefusal(t, run(me, "echo never"), protocol.KindConflict, "not at its prompt")
	u.startAgent(h, op.AgentStart{Name: "cat", Command: "exec cat"})
	wantRefusal(t, run(me, "echo never"), protocol.KindConflict, "cat has control")
	if err := h.AgentReady(session, u.id, "cat"); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, run(me, "echo never"), protocol.KindConflict, "cat is in front")
	if got, _, err := h.Screen(session, u.id, 100); err != nil || strings.Contains(got, "never") {
		t.Errorf("%q, %v", got, err)
	}
	for _, command := range []string{"sh", "bash --norc", "cat"} {
		mute := sitDown(t, h, op.PTYCreate{Command: "echo up; " + command})
		mute.expect("up")
		_, err := h.Run(t.Context(), session, mute.id, me, "echo never")
		wantRefusal(t, err, protocol.KindUnsupported, "bash and zsh")
	}
}

// TestRunPartly: what is not waited for goes on, and what ends the shell or what
// it prints is told.
func TestRunPartly(t *testing.T) {
	shells(t, func(t *testing.T, h *Host, id protocol.PTYID) {
		if _, err := runs(t, h, id, elsewhere, "true"); err != nil {
			t.Fatal(err)
		}
		term, err := h.Get(session, id)
		must(t, err)
		shows := func(text string) {
			for t.Context().Err() == nil && !strings.Contains(string(term.view.plain(0)), text) {
				<-time.After(5 * time.Millisecond)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { // ends before the command is given up
			defer cancel()
			shows("\nbegun")
		}()
		r, err := h.Run(ctx, session, id, elsewhere, "echo begun; read x; echo got $x")
		if wantKind(t, err, protocol.KindUnavailable); r.Output != "begun\n" {
			t.Errorf("%+v", r)
		}
		if err := h.TypeFor(t.Context(), session, id, elsewhere, []byte("word\r")); err != nil {
			t.Fatal(err)
		}
		if r, err := runs(t, h, id, elsewhere, "echo next"); err != nil || r.Output != "next\n" {
			t.Errorf("%+v, %v", r, err)
		}
		h.SetSecrets(compile(t, secretA), []string{secretA})
		if r, err := runs(t, h, id, elsewhere, "echo '"+secretA+"'"); err != nil || r.Output != strings.Repeat("*", len(secretA))+"\n" {
			t.Errorf("%+v, %v", r, err)
		}
		// A secret that is set meanwhile takes what was printed with it, and what
		// the shell noted still tells the end.
		ended := make(chan shell.Result)
		go func() {
			r, err := h.Run(t.Context(), session, id, elsewhere, "echo password-to-be; read x; (exit 5)")
			if err != nil {
				t.Error(err)
			}
			ended <- r
		}()
		shows("\npassword-to-be")
		h.SetSecrets(compile(t, "password-to-be"), []string{"password-to-be"})
		_, err = h.Run(t.Context(), session, id, elsewhere, "true")
		wantRefusal(t, err, protocol.KindConflict, "another command")
		must(t, h.TypeFor(t.Context(), session, id, elsewhere, []byte("\r")))
		if r := <-ended; r.ExitCode != 5 || !r.Truncated || strings.Contains(r.Output, "password-to-be") {
			t.Errorf("%+v", r)
		}
		r, err = runs(t, h, id, elsewhere, "echo last; exit 3")
		if wantKind(t, err, protocol.KindEnded); r.ExitCode != 3 || !strings.HasPrefix(r.Output, "last\n") {
			t.Errorf("%+v", r)
		}
		_, err = h.Run(t.Context(), session, id, elsewhere, "true")
		wantKind(t, err, protocol.KindEnded)
	})
}
