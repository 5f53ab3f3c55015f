package codingagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const session = protocol.SessionID("ses_1")

// patience is reached by a hang only.
const patience = time.Minute

// A world is a host with a folder for programs.
type world struct {
	*Host
	t        testing.TB
	dir      string
	own      bool
	features *around
}

// around notes what a Host tells its features.
type around struct {
	mu    sync.Mutex
	calls []string
	fail  error
}

func (a *around) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
}

func (a *around) took() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	a.calls = nil
	return calls
}

func (a *around) TerminalStarts(start *feature.Start) error {
	a.note("starts")
	start.Env = append(start.Env, "AROUND=yes")
	start.Credentials = &protocol.MCPCredentials{URL: "http://127.0.0.1:1/", Secret: "s3cret", SessionID: start.Session, PTYID: start.PTY}
	return a.fail
}

func (a *around) FurnishHome(home feature.Home) error {
	a.note("furnish %s, tools only: %t", home.Agent, home.ToolsOnly)
	return nil
}

func (a *around) TerminalEnded(t feature.Terminal) { a.note("ended") }

// each runs a test with a uid for each account, where that is possible, and
// without.
func each(t *testing.T, test func(w *world)) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%t", own), func(t *testing.T) {
			if own && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			test(newWorld(t, own))
		})
	}
}

func newWorld(t testing.TB, own bool) *world {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // reachable by other uids
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, own: own, features: &around{}}
	for _, name := range []string{"bin", "homes", "workspace/project"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.Host = w.host(own)
	return w
}

// host returns another host of the same folders.
func (w *world) host(own bool) *Host {
	h := New(Options{
		Accounts: w.pool(own), Features: w.features,
		Setup: launch.Setup{
			Workspace: filepath.Join(w.dir, "workspace"), Shell: "/bin/sh",
			SearchPath: filepath.Join(w.dir, "bin") + ":" + launch.DefaultSearchPath,
		},
	})
	w.t.Cleanup(func() { h.Close() })
	return h
}

func (w *world) pool(own bool) *account.Pool {
	return &account.Pool{Homes: filepath.Join(w.dir, "homes"), Own: own, FirstUID: 56000, GID: 56000}
}

// program makes a shell script that is found by its name. One of the same name that
// has just started goes on with its own.
func (w *world) program(name, script string) {
	w.t.Helper()
	file := filepath.Join(w.dir, "bin", name)
	err := os.WriteFile(file+".new", []byte("#!/bin/sh\n"+script), 0o755)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// run starts a script.
func (w *world) run(script string, args ...string) *Process {
	w.t.Helper()
	w.program("standin", script)
	p, err := w.Start(w.t.Context(), Launch{Session: session, Command: provider.Command{Program: "standin", Args: args}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Close)
	return p
}

// line reads a line of text.
func (w *world) line(p *Process) string {
	w.t.Helper()
	l, err := p.Line()
	if err != nil {
		w.t.Fatal(err)
	}
	return string(l.Text)
}

// alive reports whether pid runs.
func alive(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	var there bool
	process.Each(func(s process.Stat) { there = there || s.PID == n })
	return there
}

func TestTalk(t *testing.T) {
	each(t, func(w *world) {
		began := time.Now()
		p := w.run(`echo "$PWD $1 $AROUND $FAIRLEAD_MCP_SECRET $EXTRA"
			while read -r l; do echo "got $l"; done
			echo err >&2; exit 3`, "an argument")
		if got, want := w.line(p), filepath.Join(w.dir, "workspace")+" an argument yes s3cret "; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		t.Logf("%v to the first line of a session's first program", time.Since(began))
		for i := range 3 {
			if err := p.Write(t.Context(), fmt.Appendf(nil, "line %d\n", i)); err != nil {
				t.Fatal(err)
			}
			if got := w.line(p); got != fmt.Sprintf("got line %d", i) {
				t.Errorf("%q", got)
			}
		}
		p.CloseInput()
		if _, err := p.Line(); err != io.EOF {
			t.Error(err)
		}
		exit, stderr := p.Exit()
		if exit != (Exit{Code: 3}) || string(stderr) != "err\n" {
			t.Errorf("%+v %q", exit, stderr)
		}
		if err := p.Write(t.Context(), []byte("x")); protocol.KindOf(err) != protocol.KindEnded {
			t.Error(err)
		}
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "ended"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestFurnished: a known coding agent finds the tools, and has no hooks.
func TestFurnished(t *testing.T) {
	each(t, func(w *world) {
		w.program("claude", `echo "$HOME"`)
		p, err := w.Start(t.Context(), Launch{Session: session, Command: provider.Command{Program: "claude"}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		w.line(p)
		<-p.Gone()
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "furnish claude, tools only: true", "ended"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestHome: a session's programs share a home that outlives the agent, which
// nobody gets to between its lives.
func TestHome(t *testing.T) {
	each(t, func(w *world) {
		p := w.run(`umask; id -u; pwd >"$HOME/login"; ls -ld "$HOME"; echo "$HOME"; echo "$FAIRLEAD_PTY_ID"; cat "$HOME/.fairlead/mcp.json"`)
		if got := w.line(p); !strings.HasSuffix(got, "002") {
			t.Errorf("umask %s", got)
		}
		uid := w.line(p)
		if mode := w.line(p); !strings.HasPrefix(mode, "drwx------") {
			t.Errorf("home %s", mode)
		}
		home, id := w.line(p), w.line(p)
		if got := w.line(p); home != w.Home(session) || !strings.HasPrefix(id, "chat_") || !strings.Contains(got, "s3cret") {
			t.Errorf("%s %s %s", home, id, got)
		}
		<-p.Gone()
		if n, ok := w.UID(session, protocol.PTYID(id)); !ok || n >= 0 && strconv.Itoa(n) != uid {
			t.Errorf("uid %d, %t", n, ok)
		}
		if _, ok := w.UID("ses_2", protocol.PTYID(id)); ok {
			t.Error("another session has it")
		}
		if err := w.Host.Close(); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(filepath.Dir(home)); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%v %v", st.Mode(), err)
		}
		if _, err := w.Start(t.Context(), Launch{Session: session, Command: provider.Command{Program: "standin"}}); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Error(err)
		}
		var taken func()
		if w.own { // the uid is somebody else's now: the home gets another
			n, err := strconv.Atoi(uid)
			if err != nil {
				t.Fatal(err)
			}
			lock, err := account.LockUID(n)
			if err != nil {
				t.Fatal(err)
			}
			taken = func() { lock.Close() }
		}
		w.Host = w.host(w.own)
		p = w.run(`cat "$HOME/login"; id -u; stat -c %u "$HOME/login"; echo "$FAIRLEAD_PTY_ID"`)
		workspace, now, owner := w.line(p), w.line(p), w.line(p)
		if workspace != filepath.Join(w.dir, "workspace") || now != owner || w.own == (now == uid) || w.line(p) != id {
			t.Errorf("%s %s %s, was %s", workspace, now, owner, uid)
		}
		<-p.Gone()
		if taken != nil {
			taken()
		}
		if err := w.SessionEnded(session); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(home); !os.IsNotExist(err) {
			t.Error(err)
		}
		if err := w.SessionEnded(session); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusals says why nothing starts.
func TestRefusals(t *testing.T) {
	each(t, func(w *world) {
		w.program("standin", "exit 0")
		if err := os.Symlink("/", filepath.Join(w.dir, "workspace", "out")); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			launch Launch
			kind   protocol.Kind
			says   string
		}{
			{Launch{Session: session, Command: provider.Command{Program: "codex-missing"}}, protocol.KindInvalid, "not installed"},
			{Launch{Session: session, Command: provider.Command{Program: "/bin/sh"}}, protocol.KindInvalid, "name"},
			{Launch{Session: session, Command: provider.Command{Program: "-x"}}, protocol.KindInvalid, "name"},
			{Launch{Session: session, Command: provider.Command{Program: "standin"}, Dir: "/"}, protocol.KindInvalid, "workspace"},
			{Launch{Session: session, Command: provider.Command{Program: "standin"}, Dir: ".."}, protocol.KindInvalid, "workspace"},
			{Launch{Session: session, Command: provider.Command{Program: "standin"}, Dir: "out"}, protocol.KindInvalid, "workspace"},
			{Launch{Session: "../x", Command: provider.Command{Program: "standin"}}, protocol.KindInvalid, "session"},
		} {
			_, err := w.Start(t.Context(), c.launch)
			if protocol.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v: %v", c.launch, err)
			}
		}
		w.features.fail = protocol.Errorf(protocol.KindUnavailable, "no firewall")
		if _, err := w.Start(t.Context(), Launch{Session: session, Command: provider.Command{Program: "standin"}}); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Error(err)
		}
		if n := w.Running(); n != 0 {
			t.Errorf("%d run", n)
		}
	})
}

// TestGrandchildren: what a program leaves behind gets a second, whatever it did
// to hide, and holds up nobody. What was printed is read.
func TestGrandchildren(t *testing.T) {
	each(t, func(w *world) {
		p := w.run(`cd "$HOME"; sleep 1000 & echo $! >1
			setsid sh -c 'trap "" INT TERM HUP; echo $$ >2; while :; do sleep 1000; done' &
			setsid sh -c 'sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >3' &
			until [ -s 1 ] && [ -s 2 ] && [ -s 3 ]; do sleep 0.02; done
			cat 1 2 3; printf 'half a line'; exit 0`)
		pids := []string{w.line(p), w.line(p), w.line(p)}
		began := time.Now()
		if got := w.line(p); got != "half a line" {
			t.Errorf("%q", got)
		}
		if _, err := p.Line(); err != io.EOF {
			t.Error(err)
		}
		<-p.Gone()
		if took := time.Since(began); took > patience/2 {
			t.Errorf("%v", took)
		}
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("%s is alive", pid)
			}
		}
		if exit, _ := p.Exit(); exit != (Exit{}) {
			t.Errorf("%+v", exit)
		}
	})
}

// TestEnd: one that heeds no signal but the last ends with all it started, and a
// reader gets the rest.
// It is about weakness 18 in deploy/e2e/README.md.
func TestEnd(t *testing.T) {
	each(t, func(w *world) {
		p := w.run(`trap 'echo int' INT; trap 'echo term' TERM; sh -c 'trap "" INT TERM; echo $$; while :; do sleep 0.1; done' & while :; do sleep 0.1; done`)
		child := w.line(p)
		p.Interrupt()
		if got := w.line(p); got != "int" {
			t.Errorf("%q", got)
		}
		if err := p.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		if alive(child) || alive(strconv.Itoa(p.PID())) {
			t.Error("something is alive")
		}
		var rest []string
		for {
			l, err := p.Line()
			if err != nil {
				break
			}
			rest = append(rest, string(l.Text))
		}
		t.Logf("%q", rest)
		if exit, _ := p.Exit(); exit.Signal != "SIGKILL" {
			t.Errorf("%+v", exit)
		}
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "ended"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestSessionEnds ends all that runs, and leaves other sessions alone.
func TestSessionEnds(t *testing.T) {
	each(t, func(w *world) {
		first := w.run(`echo $$; sleep 1000`)
		second := w.run(`echo $$; sleep 1000`)
		other, err := w.Start(t.Context(), Launch{Session: "ses_2", Command: provider.Command{Program: "standin"}})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		pids := []string{w.line(first), w.line(second), w.line(other)}
		if w.Running() != 3 {
			t.Errorf("%d run", w.Running())
		}
		if err := w.SessionEnded(session); err != nil {
			t.Fatal(err)
		}
		if alive(pids[0]) || alive(pids[1]) || !alive(pids[2]) || w.Running() != 1 {
			t.Error("the wrong ones are alive")
		}
		if got := w.features.took(); !slices.Equal(got, []string{"starts", "starts", "starts", "ended"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestWriteWaits: a program that doesn't read holds up its writer until that
// gives up, and is then written no more.
func TestWriteWaits(t *testing.T) {
	each(t, func(w *world) {
		p := w.run(`echo ready; sleep 1000`)
		w.line(p)
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		wrote := make(chan error)
		go func() { wrote <- p.Write(ctx, make([]byte, 1<<20)) }()
		for unread(t, p.in.file) == 0 { // it is full soon, and then the writer waits
			runtime.Gosched()
		}
		cancel(gaveUp)
		if err := <-wrote; err != gaveUp {
			t.Error(err)
		}
		if err := p.Write(t.Context(), []byte("x")); err != errBroken {
			t.Error(err)
		}
		if err := p.Write(t.Context(), make([]byte, MaxWrite+1)); protocol.KindOf(err) != protocol.KindTooLarge {
			t.Error(err)
		}
	})
}

// unread returns how many bytes wait in a pipe.
func unread(t *testing.T, f *os.File) (n int) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestManyLines: what a program prints before its end is read however late.
func TestManyLines(t *testing.T) {
	w := newWorld(t, false)
	p := w.run(`i=0; while [ $i -lt 1500 ]; do echo "line $i of what was printed"; i=$((i+1)); done; head -c 100000 /dev/zero | tr '\\0' x >&2`)
	<-p.Done()
	for i := range 1500 {
		if got := w.line(p); got != fmt.Sprintf("line %d of what was printed", i) {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if _, err := p.Line(); err != io.EOF {
		t.Error(err)
	}
	if _, stderr := p.Exit(); len(stderr) != stderrBytes {
		t.Errorf("%d bytes", len(stderr))
	}
}

// BenchmarkStart reports how long a program takes from its start to its first
// line, where the session's account is there.
func BenchmarkStart(b *testing.B) {
	for _, own := range []bool{true, false} {
		if own && os.Geteuid() != 0 {
			continue
		}
		b.Run(fmt.Sprintf("own=%t", own), func(b *testing.B) {
			w := newWorld(b, own)
			w.program("standin", "echo ready; read -r line")
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				p, err := w.Start(b.Context(), Launch{Session: session, Command: provider.Command{Program: "standin"}})
				if err != nil {
					b.Fatal(err)
				}
				w.line(p)
				took = append(took, time.Since(began))
				p.CloseInput()
				<-p.Gone()
				p.Close()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}
