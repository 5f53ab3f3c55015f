package terminal

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// realHost returns a host of real PTYs, which the test's end shuts down.
func realHost(t testing.TB, isolation Isolation) *Host {
	t.Helper()
	if isolation == IsolationUID && os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // reachable by PTY uids
		t.Fatal(err)
	}
	h, err := NewHost(Config{
		Workspace: filepath.Join(dir, "workspace"), Homes: filepath.Join(dir, "homes"),
		Isolation: isolation, Shell: "/bin/bash",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Shutdown(context.Background()) })
	return h
}

// A user is a viewer who holds control of a real terminal.
type user struct {
	*viewer
	id     protocol.PTYID
	term   uint64
	seq    uint64
	acked  uint64
	seen   bytes.Buffer // output not yet expected
	exited *protocol.Exited
	agent  protocol.AgentState
	holder protocol.UserID
	head   uint64 // of the output that it has got
}

// sitDown creates a terminal and takes control of it, unless its program has
// ended by then.
func sitDown(t testing.TB, h *Host, p op.PTYCreate) *user {
	t.Helper()
	info, err := h.Create(t.Context(), session, "", p)
	if err != nil {
		t.Fatal(err)
	}
	term, err := h.Get(session, info.ID)
	if err != nil {
		t.Fatal(err)
	}
	u := &user{viewer: attach(t, term, nil), id: info.ID}
	u.mayControl(alice, "gr_1")
	u.Propose(protocol.LeaseProposal{ExpectRevision: u.opened.Lease.Revision, Next: protocol.LeaseNext{Holder: alice, GrantID: "gr_1"}})
	for u.term == 0 && u.exited == nil {
		u.read()
	}
	return u
}

// read takes in one message.
func (u *user) read() {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	next, err := u.Next(ctx)
	if err != nil {
		u.t.Fatalf("%v; seen %q", err, u.seen.String())
	}
	switch m := next.(type) {
	case protocol.Data:
		u.seen.Write(m.Bytes)
		u.head = m.Offset + uint64(len(m.Bytes))
	case protocol.InputAck:
		u.acked = m.Seq
	case protocol.Leased:
		u.term, u.holder = m.Lease.Term, m.Lease.Holder
	case protocol.InputRefused:
		u.t.Fatalf("input refused: %+v", m)
	case protocol.AgentReport:
		u.agent = m.State
	case protocol.Exited:
		u.exited = &m
	}
}

// expect reads until the output matches pattern, and returns what its first
// group matched, or the whole. It forgets the output up to there.
func (u *user) expect(pattern string) string {
	u.t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		if m := re.FindSubmatchIndex(u.seen.Bytes()); m != nil {
			group := m[len(m)-2:]
			found := string(u.seen.Bytes()[group[0]:group[1]])
			u.seen.Next(m[1])
			return found
		}
		if u.exited != nil {
			u.t.Fatalf("ended with %+v before %q; seen %q", *u.exited, pattern, u.seen.String())
		}
		u.read()
	}
}

// enter types s as it is.
func (u *user) enter(s string) {
	u.seq++
	u.typed(u.term, u.seq, s)
}

func (u *user) wantExit(code int, signal string) {
	u.t.Helper()
	for u.exited == nil {
		u.read()
	}
	if u.exited.Code != code || u.exited.Signal != signal {
		u.t.Fatalf("%+v, want %d %q", *u.exited, code, signal)
	}
}

// unechoed runs a script in a terminal that doesn't echo.
func unechoed(script string) op.PTYCreate {
	return op.PTYCreate{Command: "stty raw -echo; " + script}
}

func isolations(t *testing.T, f func(t *testing.T, h *Host)) {
	for _, isolation := range []Isolation{IsolationUID, IsolationNone} {
		t.Run(string(isolation), func(t *testing.T) { f(t, realHost(t, isolation)) })
	}
}

func TestShell(t *testing.T) {
	t.Setenv("AGENT_SECRET", "hush")
	isolations(t, func(t *testing.T, h *Host) {
		u := sitDown(t, h, op.PTYCreate{CreatorID: alice, Cols: 100, Rows: 30})
		u.expect(`sandbox[^\n]*[#$] `)
		u.enter("echo $((6*7))\r")
		u.expect(`\r42\r`)
		u.enter("stty size; echo $TERM $LANG $HOME; pwd; umask\r")
		u.expect(`\r30 100\r\nxterm-256color C.UTF-8 ` + h.config.Homes + "/" + string(u.id) + `\r\n` + h.config.Workspace + `\r\n0002\r`)
		u.enter("env | grep -c SECRET\r")
		u.expect(`\r0\r`)
		u.Resize(protocol.Resize{Term: u.term, Cols: 120, Rows: 40})
		u.enter("stty size\r")
		u.expect(`\r40 120\r`)
		u.enter("exit 3\r")
		u.wantExit(3, "")
	})
}

func TestPlainShell(t *testing.T) {
	h := realHost(t, IsolationNone)
	h.config.Shell = "/bin/sh"
	u := sitDown(t, h, op.PTYCreate{})
	u.expect(`sandbox[^\n]*[#$] `)
	u.enter("kill -9 $$\r")
	u.wantExit(-1, "SIGKILL")
}

func TestCommands(t *testing.T) {
	h := realHost(t, IsolationNone)
	if err := os.MkdirAll(filepath.Join(h.config.Workspace, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(h.config.Workspace, "out")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		p    op.PTYCreate
		seen string
	}{
		{op.PTYCreate{Command: "echo a  b | tr a c"}, `^c b\r\n$`},
		{op.PTYCreate{Command: "echo", Args: []string{"a  b", "|"}}, `^a  b \|\r\n$`},
		{op.PTYCreate{Command: "pwd", Dir: "a/b"}, `workspace/a/b\r\n`},
		{op.PTYCreate{Command: "pwd", Dir: h.config.Workspace + "/a"}, `workspace/a\r\n`},
		{op.PTYCreate{Command: "/no/such/program", Args: []string{"x"}}, `not found`},
	} {
		u := sitDown(t, h, tt.p)
		for u.exited == nil {
			u.read()
		}
		if !regexp.MustCompile(tt.seen).Match(u.seen.Bytes()) {
			t.Errorf("%+v printed %q", tt.p, u.seen.String())
		}
	}
	for _, p := range []op.PTYCreate{
		{Dir: ".."}, {Dir: "a/../.."}, {Dir: "/etc"}, {Dir: "out"}, {Dir: "none"}, {Dir: "a\x00b"},
		{Args: []string{"x"}}, {Command: "-c", Args: []string{"x"}}, {Command: "a\x00b"}, {Cols: -1},
	} {
		_, err := h.Create(t.Context(), session, "", p)
		if err == nil || protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// TestIsolation shows that two terminals share the workspace and nothing else.
func TestIsolation(t *testing.T) {
	h := realHost(t, IsolationUID)
	a, b := sitDown(t, h, op.PTYCreate{}), sitDown(t, h, op.PTYCreate{})
	run := func(u *user, line, pattern string) string {
		t.Helper()
		u.enter(line + "\r")
		return u.expect(pattern)
	}
	pid := run(a, `echo "pid=$$" "tty=$(tty)"`, `pid=(\d+) tty=`)
	tty := a.expect(`(/dev/pts/\d+)\r`)
	uid := run(a, `echo "uid=$(id -u)"`, `uid=(\d+)\r`)
	if n, _ := strconv.Atoi(uid); n < DefaultFirstUID || n >= DefaultFirstUID+account.Range {
		t.Fatalf("uid %s", uid)
	}
	if other := run(b, `echo "uid=$(id -u)"`, `uid=(\d+)\r`); other == uid {
		t.Fatalf("both have uid %s", uid)
	}
	run(b, `id -g; id -G`, `\r2000\r\n2000\r`)
	proc := "/proc/" + pid
	for _, path := range []string{proc + "/environ", proc + "/mem", proc + "/fd/0", tty, h.config.Homes + "/" + string(a.id) + "/.bashrc"} {
		run(b, "cat "+path+`; echo "done=$?"`, `(?s:(?:Permission denied|not permitted).*done=1\r)`)
	}
	for _, path := range []string{proc + "/cwd/", proc + "/root" + "/", h.config.Homes, h.config.Homes + "/" + string(a.id)} {
		run(b, "ls "+path+`; echo "done=$?"`, `(?s:Permission denied.*done=2\r)`)
	}
	run(b, "kill -9 "+pid, `not permitted`)
	run(a, `mkdir d; echo from-a >d/f; echo "made=$?"`, `made=0\r`)
	run(b, `echo from-b >>d/f; cat d/f`, `\rfrom-a\r\nfrom-b\r`)
	run(b, `stat -c %g:%a d`, `\r2000:2775\r`)
	run(b, `echo x >$(tty); echo "wrote=$?"`, `wrote=0\r`)
}

// TestCloseLeavesNothing ends a terminal whose processes left its session,
// ignore SIGHUP, or are stopped.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	h := realHost(t, IsolationUID)
	u := sitDown(t, h, op.PTYCreate{Command: `
		setsid sleep 1001 & sleep 1002 & nohup sleep 1003 >/dev/null 2>&1 &
		sh -c 'kill -STOP $$' & trap '' HUP; echo "uid=$(id -u) up"; while :; do sleep 1004; done`})
	uid, err := strconv.Atoi(u.expect(`uid=(\d+) up`))
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		process.Each(func(s process.Stat) {
			if s.UID == uid {
				n++
			}
		})
		return n
	}
	if count() < 5 {
		t.Fatalf("%d processes of uid %d", count(), uid)
	}
	if err := h.Close(session, u.id); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Fatalf("%d processes are left", n)
	}
	if _, err := os.Stat(filepath.Join(h.config.Homes, string(u.id))); !os.IsNotExist(err) {
		t.Errorf("the home is left: %v", err)
	}
	u.wantExit(-1, "SIGKILL")
	if err := h.Close(session, u.id); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("second Close: %v", err)
	}
}

func TestShutdownKillsAtOnce(t *testing.T) {
	h := realHost(t, IsolationNone)
	u := sitDown(t, h, op.PTYCreate{Command: `trap '' HUP; echo up; while :; do sleep 1005; done`})
	u.expect("up")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Shutdown(ctx) // TestShutdown shows when
	u.wantExit(-1, "SIGKILL")
	if _, err := h.Create(t.Context(), session, "", op.PTYCreate{}); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("Create after Shutdown: %v", err)
	}
}

func TestSignal(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		u := sitDown(t, h, op.PTYCreate{})
		u.expect(`sandbox[^\n]*[#$] `)
		u.enter(`sh -c 'trap "echo got-it; exit 5" INT; echo ready; while :; do sleep 0.05; done'; echo "status=$?"` + "\r")
		u.expect(`\rready`)
		if err := h.Signal(session, u.id, "INT"); err != nil {
			t.Fatal(err)
		}
		u.expect(`got-it(?s:.*)status=5\r`) // the job, not the shell
		if err := h.Signal(session, u.id, "SEGV"); protocol.KindOf(err) != protocol.KindInvalid {
			t.Error(err)
		}
		if err := h.Signal(session, u.id, "KILL"); err != nil {
			t.Fatal(err)
		}
		u.wantExit(-1, "SIGKILL")
		if err := h.Signal(session, u.id, "INT"); protocol.KindOf(err) != protocol.KindEnded {
			t.Error(err)
		}
	})
}

// TestIgnoredSignals starts a terminal from an agent that was started with
// signals ignored: this test, run again under a shell that ignores them.
func TestIgnoredSignals(t *testing.T) {
	if !signal.Ignored(syscall.SIGINT) {
		again := exec.Command("/bin/sh", "-c", `trap '' INT QUIT HUP TSTP; exec "$0" "$@"`, os.Args[0], "-test.run=^TestIgnoredSignals$")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	u := sitDown(t, realHost(t, IsolationNone), op.PTYCreate{Command: "grep SigIgn: /proc/self/status"})
	// Signals 32 to 34 are the C library's own, which Go leaves as they are.
	u.expect(`SigIgn:\t0{7}[0-3][08]0{7}\r`)
}

// TestInheritedDescriptors starts a terminal from an agent that was given a
// descriptor of somebody else's.
func TestInheritedDescriptors(t *testing.T) {
	fd, err := unix.Dup(1) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	u := sitDown(t, realHost(t, IsolationNone), op.PTYCreate{Command: "ls -m /proc/self/fd"})
	u.expect(`^0, 1, 2, 3\r`) // 3 is what ls reads
}

// TestPaste sends 1 MiB as a client does, at most 64 KiB ahead of the acks, to
// a program that reads in bursts.
func TestPaste(t *testing.T) {
	for name, script := range map[string]string{
		"raw":   `stty raw -echo; echo ready; head -c 1048576 | sha256sum`,
		"lines": `stty -echo; echo ready; head -c 1048576 | sha256sum`,
		"slow":  `stty raw -echo; echo ready; (dd bs=1 count=5000 2>/dev/null; sleep 0.3; head -c 1043576) | sha256sum`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := sitDown(t, realHost(t, IsolationNone), op.PTYCreate{Command: script})
			u.expect("ready")
			random := make([]byte, 1<<19)
			rand.Read(random)
			paste := []byte(hex.EncodeToString(random))
			for i := 79; i < len(paste); i += 80 {
				paste[i] = '\n'
			}
			paste[len(paste)-1] = '\n' // what has no end, a line discipline keeps
			const chunk = 8 << 10
			for at := 0; at < len(paste); at += chunk {
				for u.seq-u.acked >= protocol.MaxInputUnacked/chunk {
					u.read()
				}
				u.enter(string(paste[at : at+chunk]))
			}
			if got, want := u.expect(`[0-9a-f]{64}`), fmt.Sprintf("%x", sha256.Sum256(paste)); got != want {
				t.Errorf("hash %s, want %s", got, want)
			}
		})
	}
}

// TestFlood compares every byte of a large output.
func TestFlood(t *testing.T) {
	h := realHost(t, IsolationNone)
	u := sitDown(t, h, unechoed(`echo up; read x; seq 1 400000`))
	u.expect("up\n") // all that comes from now on is for somebody who is there
	u.enter("\n")
	for u.exited == nil {
		u.read()
	}
	var want bytes.Buffer
	for i := range 400000 {
		fmt.Fprintln(&want, i+1)
	}
	if !bytes.Equal(u.seen.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes of output, want %d", u.seen.Len(), want.Len())
	}
}

// TestThreads shows that terminals don't hold threads, neither those that read
// nor those that wait for an end.
func TestThreads(t *testing.T) {
	threads := func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "Threads:\t")
		n, err := strconv.Atoi(rest[:strings.IndexByte(rest, '\n')])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	h := realHost(t, IsolationNone)
	before := threads()
	const n = 40
	for range n {
		sitDown(t, h, unechoed("echo up; cat")).expect("up")
	}
	if after := threads(); after > before+n*3/4 { // a busy machine needs some for system calls
		t.Errorf("%d threads became %d with %d terminals", before, after, n)
	}
}
