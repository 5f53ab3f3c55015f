package helper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func ask(t *testing.T, patience time.Duration, script string) (answer struct{ N int }, err error) {
	t.Helper()
	h := Helper{Command: []string{"/bin/sh", "-c", script}, Dir: "/", Patience: patience, MaxMemory: 64 << 20, MaxAnswer: 1000}
	if os.Geteuid() == 0 {
		h.User = &syscall.Credential{Uid: 54321, Gid: 54321}
	}
	err = h.Ask(t.Context(), struct{ N int }{6}, &answer)
	return answer, err
}

// TestAsk: the question comes by standard input, the answer by standard output, from
// somebody with no rights and nothing of our environment.
func TestAsk(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_SECRET", "s3cret")
	if a, err := ask(t, time.Minute, "cat"); err != nil || a.N != 6 {
		t.Errorf("%+v, %v", a, err)
	}
	_, err := ask(t, time.Minute, "cat >/dev/null; env >&2; grep -E 'NoNewPrivs|CapBnd|Uid' /proc/self/status >&2; exit 3")
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "NoNewPrivs:\t1") || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if os.Geteuid() == 0 && !strings.Contains(fmt.Sprint(err), "Uid:\t54321") {
		t.Error(err)
	}
}

// TestMisbehaves: whatever the process does, it is an error, and soon: also when
// another process holds its output.
func TestMisbehaves(t *testing.T) {
	if _, err := ask(t, time.Minute, "cat /dev/zero"); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("too long: %v", err)
	}
	if _, err := ask(t, time.Minute, "echo no"); err == nil {
		t.Error("not JSON")
	}
	for _, script := range []string{"exec sleep 1000", "setsid sleep 7 & exec sleep 1000", "setsid sleep 7 &"} {
		began := time.Now()
		if _, err := ask(t, 100*time.Millisecond, script); err == nil || time.Since(began) > 6*time.Second {
			t.Errorf("%s: %v after %v", script, err, time.Since(began))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := Helper{Command: []string{"/bin/cat"}, Dir: "/", Patience: time.Minute, MaxMemory: 64 << 20, MaxAnswer: 1000}
	if err := h.Ask(ctx, 1, new(int)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
