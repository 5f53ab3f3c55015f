package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"

	// The programs under test are built by TestMain. These imports make the Go
	// tool see that a change in them is a change of this test.
	_ "github.com/fairlead/fairlead/deploy/controlplane"
	_ "github.com/fairlead/fairlead/deploy/devstack"
	_ "github.com/fairlead/fairlead/relay"
	_ "github.com/fairlead/fairlead/sandbox-agent"
)

// programs is where the real programs are, built once for all tests, with the
// race detector where the tests have it.
var programs string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		sweep()
		dir, err := os.MkdirTemp("", tempName())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs = dir
		if err := Build(filepath.Join("..", ".."), dir, slices.Concat(buildFlags, tags)...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// What tests print with is no program under test: without -race.
		if err := build(filepath.Join("..", ".."), dir, []string{"./deploy/e2e/internal/source/cmd/printer", "./deploy/e2e/internal/webapp", "./deploy/e2e/internal/codingagent"}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := stopShared(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// tempPrefix begins the names of what these tests leave when they are killed.
// The number of the process that made it follows.
const tempPrefix = "fairlead-e2e-"

// openTemp is where terminals' users can reach what tests make.
const openTemp = "/var/tmp"

func tempName() string { return fmt.Sprintf("%s%d-", tempPrefix, os.Getpid()) }

// sweep removes what tests that were killed have left. What is somebody else's
// can't be removed, and is not looked at.
func sweep() {
	for _, parent := range []string{os.TempDir(), openTemp} {
		dirs, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
		for _, dir := range dirs {
			var pid int
			info, err := os.Lstat(dir)
			if _, scanErr := fmt.Sscanf(filepath.Base(dir), tempPrefix+"%d-", &pid); err != nil || scanErr != nil {
				continue
			}
			stat, ok := info.Sys().(*syscall.Stat_t)
			if ok && info.IsDir() && int(stat.Uid) == os.Getuid() && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				os.RemoveAll(dir)
			}
		}
	}
}

// stackDir makes a directory for the state of a stack.
func stackDir() (string, error) { return os.MkdirTemp("", tempName()) }

// sharedStack is the stack of all tests that break nothing.
var sharedStack struct {
	once  sync.Once
	stack *Stack
	dir   string
	err   error
}

func shared(t *testing.T) *Stack {
	t.Helper()
	s := &sharedStack
	s.once.Do(func() {
		if s.dir, s.err = stackDir(); s.err == nil {
			s.stack, s.err = Start(programs, s.dir)
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	t.Cleanup(func() { explain(t, s.stack) })
	return s.stack
}

func stopShared() error {
	if sharedStack.stack == nil {
		return nil
	}
	defer os.RemoveAll(sharedStack.dir)
	return sharedStack.stack.Stop()
}

// own starts a stack for one test that breaks something.
func own(t testing.TB, flags ...string) *Stack {
	t.Helper()
	dir, err := stackDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := Start(programs, dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		explain(t, s)
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// explain shows the logs of a stack whose test failed, and fails a test whose
// programs raced.
func explain(t testing.TB, s *Stack) {
	for _, name := range []string{"controlplane", "relay-1", "sandbox-agent-1"} {
		log := s.Logs(name)
		if t.Failed() {
			t.Logf("%s:\n%s", name, log[max(0, len(log)-4000):])
		}
		if raced(log) {
			t.Errorf("data race in %s:\n%s", name, log[max(0, len(log)-8000):])
		}
	}
}

// patience is how long a test waits for what takes a moment: it ends a test that
// hangs, not one on a busy machine.
const patience = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// must stops the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// attach opens a terminal for a user of the stack, and waits until the user is
// in: whoever is let in behind a change of control isn't told of it.
func attach(t *testing.T, s *Stack, name string, id protocol.PTYID) *Terminal {
	t.Helper()
	term, err := s.Ready.User(name).Attach(within(t), s.Ready.SessionID, id, "")
	must(t, err)
	t.Cleanup(term.Close)
	_, err = term.ExpectMessage(within(t), protocol.ServerControlState, nil)
	must(t, err)
	return term
}

// newPTY has alice open a terminal that runs command.
func newPTY(t *testing.T, s *Stack, command string) protocol.PTYID {
	t.Helper()
	id, err := s.NewPTY(within(t), s.Ready.User("alice"), command)
	must(t, err)
	return id
}
