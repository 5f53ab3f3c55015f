package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if log := os.Getenv("DEVSTACK_TEST_PARENT"); log != "" {
		beParent(log)
	}
	goleak.VerifyTestMain(m)
}

// beParent starts a child, prints its pid and waits to be killed.
func beParent(log string) {
	c, err := start(context.Background(), "sleeper", log, "/bin/sleep", "600")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.pid.Load())
	<-c.done
	os.Exit(0)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shell starts a script as a child that ends with the test.
func shell(t *testing.T, script string) *child {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := start(ctx, "script", filepath.Join(t.TempDir(), "log"), "/bin/sh", "-c", script)
	must(t, err)
	t.Cleanup(func() {
		cancel()
		<-c.done
	})
	return c
}

func TestChild(t *testing.T) {
	t.Setenv("FAIRLEAD_LISTEN", "0.0.0.0:1")
	c := shell(t, `echo first; echo "last of ${FAIRLEAD_LISTEN-nothing}" >&2; exit 3`)
	<-c.done
	if err := c.failure(); !strings.Contains(err.Error(), "script exit status 3: last of nothing (its log: "+c.log) {
		t.Errorf("failure: %v", err)
	}
}

func TestStartOfNoProgram(t *testing.T) {
	c, err := start(t.Context(), "relay-1", filepath.Join(t.TempDir(), "log"), "/no/such/program")
	if c != nil || err == nil || !strings.Contains(err.Error(), "relay-1") || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("%v, %v", c, err)
	}
}

func TestWaitFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ready")
	data, err := shell(t, `echo yes > "`+path+`.new"; mv "`+path+`.new" "`+path+`"; exec sleep 600`).waitFile(t.Context(), path)
	if err != nil || string(data) != "yes\n" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := shell(t, "echo why; exit 1").waitFile(t.Context(), filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("of one that ended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := shell(t, "exec sleep 600").waitFile(ctx, filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "not ready in time") {
		t.Errorf("of one that is slow: %v", err)
	}
}

func TestLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 3*maxLastLine)
	for text, want := range map[string]string{
		"":                      "",
		"a\nb\n":                "b",
		"a\nb\n\n":              "b",
		long + "\nthe end\n":    "the end",
		"a\n" + long:            long[:maxLastLine],
		strings.Repeat("\n", 9): "",
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if got := lastLine(path); got != want {
			t.Errorf("of %.20q… it is %.20q…, want %.20q…", text, got, want)
		}
	}
}

// TestChildEndsWithItsParent: also when that is killed.
func TestChildEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "DEVSTACK_TEST_PARENT="+filepath.Join(t.TempDir(), "log"))
	out, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	if !alive(pid) {
		t.Fatalf("child %d has ended before its parent", pid)
	}
	must(t, parent.Process.Kill())
	parent.Wait() // it was killed
	deadline := time.After(time.Minute)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for alive(pid) {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("child %d lives on", pid)
		}
	}
}

// alive reports whether a process runs; one that nobody has waited for yet
// doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// A fakeProgram dies as soon as it is started, in virtual time, after having
// been ready or not.
type fakeProgram struct {
	dir    string
	began  time.Time
	starts []time.Duration // when it was started again
	lives  []string        // what becomes of each start: "ready", "early", "none"; then it lives on
	last   *child
}

func (p *fakeProgram) child(life string) *child {
	c := &child{name: "relay-1", log: filepath.Join(p.dir, "log"), done: make(chan struct{})}
	switch life {
	case "ready":
		c.ready = filepath.Join(p.dir, "ready")
		close(c.done)
	case "early":
		c.ready = filepath.Join(p.dir, "none")
		close(c.done)
	}
	p.last = c
	return c
}

func (p *fakeProgram) start() (*child, error) {
	life := ""
	if len(p.starts) < len(p.lives) {
		life = p.lives[len(p.starts)]
	}
	p.starts = append(p.starts, time.Since(p.began))
	if life == "none" {
		return nil, errors.New("can't be started")
	}
	return p.child(life), nil
}

// TestKeeper: a program that was ready is back at once; one that dies earlier,
// or can't be started, ever later.
func TestKeeper(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		first string
		lives []string
		want  []time.Duration
	}{
		{"ready", nil, []time.Duration{0}},
		{"ready", []string{"ready", "ready", "ready"}, []time.Duration{0, 0, 0, 0}},
		{"early", nil, []time.Duration{20 * ms}},
		{"ready", []string{"early", "early", "early", "ready", "early"}, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms, 140 * ms, 160 * ms}},
		{"ready", []string{"none", "none", "early"}, []time.Duration{0, 20 * ms, 60 * ms, 140 * ms}},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600))
		synctest.Test(t, func(t *testing.T) {
			p := &fakeProgram{dir: dir, began: time.Now(), lives: tt.lives}
			k := &keeper{start: p.start, started: func() {}, say: func(string, ...any) {}}
			k.set(p.child(tt.first))
			ctx, cancel := context.WithCancel(t.Context())
			var keeping sync.WaitGroup
			keeping.Go(func() { k.keep(ctx) })
			time.Sleep(time.Minute) // virtual
			cancel()
			close(k.child().done)
			keeping.Wait()
			if !slices.Equal(p.starts, tt.want) {
				t.Errorf("%s %v: started at %v, want %v", tt.first, tt.lives, p.starts, tt.want)
			}
		})
	}
}

func TestLongestPause(t *testing.T) {
	pause := time.Duration(0)
	for range 100 {
		pause = longer(pause)
	}
	if pause != longestPause {
		t.Errorf("%v", pause)
	}
}

// TestKeeperIsQuick: a real program that was ready is back within 100 ms, where
// the machine has time for it.
func TestKeeperIsQuick(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan time.Time, 1)
	run := func() (*child, error) {
		c, err := start(ctx, "relay-1", filepath.Join(dir, "log"), "/bin/sleep", "600")
		if err == nil {
			c.ready = filepath.Join(dir, "ready")
		}
		return c, err
	}
	k := &keeper{start: run, started: func() { started <- time.Now() }, say: t.Logf}
	first, err := run()
	must(t, err)
	k.set(first)
	var keeping sync.WaitGroup
	keeping.Go(func() { k.keep(ctx) })
	var took []time.Duration
	for range 10 {
		killed := time.Now()
		must(t, syscall.Kill(int(k.child().pid.Load()), syscall.SIGKILL))
		took = append(took, (<-started).Sub(killed))
	}
	cancel()
	keeping.Wait()
	<-k.child().done
	if slices.Min(took) > 100*time.Millisecond {
		t.Errorf("back after %v", took)
	}
}
