package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// childDir is set where this program is the agent that gets killed.
const childDir = "FAIRLEAD_TEST_BROWSER_DIR"

// pageTargets returns how many tabs there are.
func (w *world) pageTargets(t *testing.T) (n int) {
	t.Helper()
	c := w.chromium()
	res, err := cdp.Call(c.ctx, c.browser, target.GetTargets, target.GetTargetsParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range res.TargetInfos {
		if info.Type == "page" {
			n++
		}
	}
	return n
}

// processes returns the Chromium processes whose profile is in dir: those that
// were started with it and all that descend from them.
func processes(dir string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		folder := filepath.Join("/proc", entry.Name())
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline")) // it may have ended
		env, _ := os.ReadFile(filepath.Join(folder, "environ"))
		if bytes.Contains(line, []byte("--user-data-dir="+dir)) || bytes.Contains(env, []byte("HOME="+dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestUser: Chromium is an unprivileged user with a folder that nobody else can
// look into, and gets none of the agent's environment.
func TestUser(t *testing.T) {
	w := theWorld(t)
	t.Setenv("FAIRLEAD_TEST_SECRET", "s3cret")
	w.text(t, "browser_start")
	found := processes(w.Browser.opts.Dir)
	if len(found) < 2 {
		t.Fatalf("%v", found)
	}
	for _, pid := range found {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if strings.Contains(string(status), "\nUid:\t0\t") || strings.Contains(string(status), "\nGid:\t0\t") {
			t.Errorf("%d is root: %s", pid, status)
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.Contains(string(env), "s3cret") {
			t.Errorf("%d has the agent's environment", pid)
		}
	}
	st, err := os.Stat(w.profile(session))
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if owner, ok := st.Sys().(*syscall.Stat_t); ok && owner.Uid == 0 {
		t.Error("the profile is root's")
	}
	if !w.chromium().sandboxed {
		t.Log("this machine has no user namespaces for Chromium's sandbox")
	}
}

// accounts has one user for all browsers.
type accounts Account

func (a accounts) ReserveUID() (uid, gid int, release func(), err error) {
	return a.UID, a.GID, a.Release, nil
}

// TestNeverRoot: whoever is named, it isn't root.
func TestNeverRoot(t *testing.T) {
	users := []Account{{UID: 0, GID: 1}, {UID: 1, GID: 0}}
	if os.Geteuid() == 0 {
		users = append(users, Account{UID: -1, GID: -1})
	}
	for _, a := range users {
		released := false
		a.Release = func() { released = true }
		opts := Options{Accounts: accounts(a)}
		if _, err := opts.account(session); !errors.Is(err, errRoot) || !released {
			t.Errorf("%+v: %v", a, err)
		}
	}
}

// TestCrash: what is under way when Chromium dies fails, and the next call has a
// new one, with the cookies that were kept.
func TestCrash(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/here")
	before := w.chromium()
	var calls sync.WaitGroup
	calls.Go(func() {
		if _, err := w.call("browser_evaluate", "script", "new Promise(() => {})"); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Errorf("%v", err)
		}
	})
	eventually(t, "under way", func() bool {
		w.Browser.mu.Lock()
		defer w.Browser.mu.Unlock()
		return w.seats[session].uses == 1
	})
	before.kill()
	calls.Wait()
	w.visit(t, "/again")
	if w.chromium() == before {
		t.Error("it is the same")
	}
	// A tab whose renderer is gone is as good as none.
	before = w.chromium()
	for _, pid := range processes(w.Browser.opts.Dir) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(line, []byte("--type=renderer")) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	eventually(t, "noticed", func() bool { return w.chromium() != before })
	w.visit(t, "/again")
}

// hold keeps the session's Chromium from being idle, as a call does.
func (w *world) hold(t *testing.T) (release func()) {
	t.Helper()
	_, _, release, err := w.use(t.Context(), session, roster.Want{})
	if err != nil {
		t.Fatal(err)
	}
	return release
}

// TestLife: a Chromium ends when it is idle, with all its processes, and with
// its session its folder goes, too.
func TestLife(t *testing.T) {
	needChromium(t)
	var released sync.WaitGroup
	released.Add(1)
	user := Account{UID: -1, GID: -1, Release: released.Done}
	if os.Geteuid() == 0 {
		user.UID, user.GID = nobody-1, nobody-1
	}
	w, err := newWorld(Options{IdleTimeout: 300 * time.Millisecond, Max: 1, Accounts: accounts(user)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if status := w.Status(t.Context(), session); status.State != stateStopped {
		t.Errorf("%+v", status)
	}
	var calls sync.WaitGroup // that come together have one
	for range 3 {
		calls.Go(func() {
			if _, err := w.call("browser_start"); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	release := w.hold(t) // until all is looked at
	w.visit(t, "/here")
	w.evaluate(t, `document.cookie = "kept=1; max-age=1000"; localStorage.kept = "2"; new Promise((done) => setTimeout(done, 400, 1))`) // longer than it may be idle
	if status := w.Status(t.Context(), session); status.State != stateRunning || status.URL != w.site.URL+"/here" || status.Title != "/here" {
		t.Errorf("%+v", status)
	}
	if _, _, _, err := w.use(t.Context(), "ses_2", roster.Want{}); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("a second one: %v", err)
	}
	release()
	eventually(t, "idle", func() bool {
		w.Browser.mu.Lock()
		defer w.Browser.mu.Unlock()
		return w.taken == 0
	})
	if left := processes(w.Browser.opts.Dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	release = w.hold(t)
	w.visit(t, "/here")
	if got := w.evaluate(t, "document.cookie + localStorage.kept"); got != `"kept=12"` {
		t.Error(got)
	}
	release()
	w.End(session)
	released.Wait()
	if left := processes(w.Browser.opts.Dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if _, err := os.Stat(w.profile(session)); !os.IsNotExist(err) {
		t.Errorf("the profile: %v", err)
	}
}

// TestNoChromium: who has none is told what to install, and what failed is told
// by the status.
func TestNoChromium(t *testing.T) {
	for name, exec := range map[string]func() (string, error){
		"install": func() (string, error) { return "", protocol.Errorf(protocol.KindUnavailable, "install it") },
		"did not": func() (string, error) { return "/bin/false", nil },
		"can't":   func() (string, error) { return "/nowhere/chromium", nil },
	} {
		w, err := newWorld(Options{Exec: exec})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.call("browser_start"); protocol.KindOf(err) != protocol.KindUnavailable || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if status := w.Status(t.Context(), session); status.State != stateStopped || !strings.Contains(status.Error, name) {
			t.Errorf("%s: %+v", name, status)
		}
		w.close()
		if _, err := w.call("browser_start"); protocol.KindOf(err) != protocol.KindEnded {
			t.Errorf("after Close: %v", err)
		}
	}
}

// TestStartFunction: the façade's own start is used and what it kills is gone,
// and a Chromium without user namespaces is started without its sandbox.
func TestStartFunction(t *testing.T) {
	script := filepath.Join(t.TempDir(), "chromium")
	// It stands for one that finds no namespaces, and says how it was called.
	text := "#!/bin/sh\ncase \"$*\" in *--no-sandbox*) echo second try; exit 1;; esac\necho 'FATAL: No usable sandbox! Update your kernel'; exit 1\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	for parent := filepath.Dir(script); parent != "/"; parent = filepath.Dir(parent) {
		_ = os.Chmod(parent, 0o755) // those that are this test's
		if parent == os.TempDir() {
			break
		}
	}
	var started [][]string
	w, err := newWorld(Options{Exec: func() (string, error) { return script, nil }, Start: func(cmd *exec.Cmd) (func(), error) {
		started = append(started, cmd.Args)
		if !cmd.SysProcAttr.Setsid || cmd.SysProcAttr.Pdeathsig != syscall.SIGKILL || os.Geteuid() == 0 && cmd.SysProcAttr.Credential.Uid == 0 {
			t.Errorf("%+v", cmd.SysProcAttr)
		}
		return func() {}, cmd.Start()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if _, err := w.call("browser_start"); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("%v", err)
	}
	if len(started) != 2 || strings.Contains(strings.Join(started[0], " "), "--no-sandbox") || !strings.Contains(strings.Join(started[1], " "), "--no-sandbox") {
		t.Errorf("%v", started)
	}
}

// TestAgentDies: no Chromium outlives its agent.
func TestAgentDies(t *testing.T) {
	needChromium(t)
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), childDir+"="+dir)
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var ready [1]byte
	if _, err := out.Read(ready[:]); err != nil {
		t.Error(err)
	}
	if found := processes(dir); len(found) < 2 {
		t.Errorf("%v", found)
	}
	agent.Process.Kill()
	agent.Wait()
	eventually(t, "gone", func() bool { return len(processes(dir)) == 0 })
}

// runChild is an agent with a running Chromium, until it is killed.
func runChild() {
	b, err := New(Options{Dir: filepath.Join(os.Getenv(childDir), "browsers")})
	if err != nil {
		panic(err)
	}
	for _, tool := range b.Tools(toolbox.Caller{}) {
		if tool.Name == "browser_start" {
			if _, err := tool.Call(context.Background(), toolbox.Caller{Session: session}, nil); err != nil {
				panic(err)
			}
		}
	}
	fmt.Print(".")
	select {}
}
