package process

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fakeProgram ends some time after a signal.
type fakeProgram struct {
	start  time.Time
	heeds  syscall.Signal
	nth    int // the how manieth
	takes  time.Duration
	got    []string
	seen   int
	done   chan struct{}
	paused bool
}

func (p *fakeProgram) Done() <-chan struct{} { return p.done }

func (p *fakeProgram) Signal(sig syscall.Signal) int {
	p.got = append(p.got, fmt.Sprintf("%v %d", time.Since(p.start), int(sig)))
	if sig == syscall.SIGCONT {
		p.paused = false
	}
	if sig != p.heeds || p.paused {
		return 1
	}
	if p.seen++; p.seen == p.nth {
		time.AfterFunc(p.takes, func() { close(p.done) })
	}
	return 1
}

func TestStop(t *testing.T) {
	const ms = time.Millisecond
	all := []string{"0s 2", "500ms 2", "1s 2", "1.5s 15", "2.5s 9"}
	for name, tt := range map[string]struct {
		program fakeProgram
		took    time.Duration
		got     []string
	}{
		"at once":          {fakeProgram{heeds: syscall.SIGINT, nth: 1}, 0, all[:1]},
		"in a moment":      {fakeProgram{heeds: syscall.SIGINT, nth: 1, takes: 200 * ms}, 200 * ms, all[:1]},
		"at the second":    {fakeProgram{heeds: syscall.SIGINT, nth: 2, takes: 10 * ms}, 510 * ms, all[:2]},
		"at the third":     {fakeProgram{heeds: syscall.SIGINT, nth: 3, takes: 499 * ms}, 1499 * ms, all[:3]},
		"terminated":       {fakeProgram{heeds: syscall.SIGTERM, nth: 1, takes: 999 * ms}, 2499 * ms, all[:4]},
		"killed":           {fakeProgram{heeds: syscall.SIGKILL, nth: 1, takes: ms}, 2501 * ms, all},
		"killed, in time":  {fakeProgram{heeds: syscall.SIGTERM, nth: 1, takes: 1001 * ms}, 2501 * ms, all},
		"paused":           {fakeProgram{heeds: syscall.SIGINT, nth: 1, paused: true}, 0, []string{"0s 18", "0s 2"}},
		"paused, stubborn": {fakeProgram{heeds: syscall.SIGKILL, nth: 1, paused: true}, 2500 * ms, append([]string{"0s 18"}, all...)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := tt.program
				p.start, p.done = time.Now(), make(chan struct{})
				if err := Stop(t.Context(), &p, p.paused); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(p.start); took != tt.took || !slices.Equal(p.got, tt.got) {
					t.Errorf("took %v with %v, want %v with %v", took, p.got, tt.took, tt.got)
				}
				if err := Stop(t.Context(), &p, false); err != nil || len(p.got) != len(tt.got) {
					t.Errorf("an ended program got %v, %v", p.got, err)
				}
			})
		})
	}
}

func TestStopInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProgram{start: time.Now(), heeds: syscall.SIGKILL, nth: 2, done: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		if err := Stop(ctx, p, false); err != nil {
			t.Fatal(err)
		}
		if want := []string{"0s 2", "500ms 2", "700ms 9", "750ms 9"}; !slices.Equal(p.got, want) {
			t.Errorf("%v, want %v", p.got, want)
		}
	})
}

func TestUnkillable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProgram{start: time.Now(), done: make(chan struct{})}
		if err := Stop(t.Context(), p, false); err == nil {
			t.Error("it was stopped")
		}
	})
}
