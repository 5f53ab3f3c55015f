package terminal

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f with a rig in virtual time.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}

func TestAttachAndFollow(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		o := v.opened
		if o.Offset != 0 || o.Head != 0 || o.Cols != 80 || o.Rows != 24 || o.Creator != alice || o.Claimed || o.Gap {
			t.Fatalf("opened %+v", o)
		}
		r.print("one\r\n")
		v.wantData(0, "one\r\n")
		r.print("two\r\n")
		v.wantData(5, "two\r\n")
		v.nothing()
	})
}

func TestResume(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.print("one\r\ntwo\r\n")
		epoch := r.attach(t, nil).opened.Epoch
		for _, tt := range []struct {
			name   string
			since  *protocol.Position
			offset uint64
			gap    bool
		}{
			{"newcomer", nil, 0, false},
			{"in the middle", &protocol.Position{Epoch: epoch, Offset: 4}, 4, false},
			{"at the head", &protocol.Position{Epoch: epoch, Offset: 10}, 10, false},
			{"beyond the head", &protocol.Position{Epoch: epoch, Offset: 11}, 0, true},
			{"another epoch", &protocol.Position{Epoch: epoch + 1, Offset: 4}, 0, true},
		} {
			v := r.attach(t, tt.since)
			if v.opened.Offset != tt.offset || v.opened.Gap != tt.gap || v.opened.Head != 10 {
				t.Errorf("%s: %+v", tt.name, v.opened)
			}
			if tt.offset < 10 {
				v.wantData(tt.offset, "one\r\ntwo\r\n"[tt.offset:])
			}
			v.nothing()
		}
	})
}

func TestNewcomerStartsAtALine(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		line := strings.Repeat("x", 98) + "\r\n"
		r.print(strings.Repeat(line, protocol.MaxReplayBytes/100+10))
		v := r.attach(t, nil)
		if back := v.opened.Head - v.opened.Offset; v.opened.Offset%100 != 0 || back > protocol.MaxReplayBytes || back < protocol.MaxReplayBytes-100 {
			t.Fatalf("starts %d back at %d", back, v.opened.Offset)
		}
	})
}

// TestSlowRelay lets a relay fall out of the window: it is told, and goes on
// near the head.
func TestSlowRelay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		line := strings.Repeat("x", 1022) + "\r\n"
		r.print(strings.Repeat(line, protocol.LogWindowBytes/1024+1))
		reset := want[protocol.Reset](v)
		if reset.Epoch != v.opened.Epoch || reset.Offset != protocol.LogWindowBytes+1024-protocol.MaxReplayBytes || reset.Cols != 80 {
			t.Fatalf("%+v", reset)
		}
		for at := reset.Offset; at < protocol.LogWindowBytes+1024; {
			d := want[protocol.Data](v)
			if d.Offset != at {
				t.Fatalf("data at %d, want %d", d.Offset, at)
			}
			at += uint64(len(d.Bytes))
		}
		old := r.attach(t, &protocol.Position{Epoch: v.opened.Epoch, Offset: 1})
		if !old.opened.Gap || old.opened.Offset != reset.Offset {
			t.Fatalf("%+v", old.opened)
		}
	})
}

func TestEnd(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.propose(alice)
		r.print("bye\r\n\x1b[6") // what the grid holds back is not lost
		r.proc.exit(3)
		close(r.dev.output)
		<-r.life.gone
		v.typed(1, 1, "x")
		v.wantRefused(1, protocol.RefusedEnded)
		v.Propose(protocol.LeaseProposal{ID: 8, ExpectRevision: 1})
		if l := want[protocol.Leased](v); l.ID != 8 || l.Refused == "" || l.Lease.Holder != alice {
			t.Fatalf("%+v", l)
		}
		v.wantData(0, "bye\r\n\x1b[6")
		if e := want[protocol.Exited](v); e.Code != 3 || e.Offset != 8 {
			t.Fatalf("%+v", e)
		}
		if _, err := v.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		late := r.attach(t, nil)
		if late.opened.Exited == nil || late.opened.Exited.Code != 3 {
			t.Fatalf("%+v", late.opened)
		}
		late.wantData(0, "bye\r\n\x1b[6")
		want[protocol.Exited](late)
	})
}

// TestDrainIsBounded ends a program whose PTY something else keeps open.
func TestDrainIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		start := time.Now()
		r.proc.exit(0)
		<-r.life.gone
		if took := time.Since(start); took != drainFor {
			t.Fatalf("took %v", took)
		}
	})
}

func TestCloseEscalates(t *testing.T) {
	for name, tt := range map[string]struct {
		stubborn bool
		leftover int
		took     time.Duration
		last     syscall.Signal
	}{
		"obedient":           {false, 0, drainFor, syscall.SIGHUP},
		"stubborn":           {true, 0, killAfter + drainFor, syscall.SIGKILL},
		"stubborn leftovers": {true, 2, killAfter + drainFor, syscall.SIGKILL},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.proc.stubborn, r.proc.leftover = tt.stubborn, tt.leftover
				start := time.Now()
				r.close()
				<-r.life.gone
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if r.proc.got[0] != syscall.SIGHUP || !slices.Contains(r.proc.got, tt.last) || r.proc.leftover != 0 {
					t.Errorf("signals %v, %d left", r.proc.got, r.proc.leftover)
				}
			})
		})
	}
}

// TestLeftovers ends a program by itself, which leaves others running.
func TestLeftovers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.proc.leftover, r.proc.stubborn = 3, true
		close(r.dev.output)
		start := time.Now()
		r.proc.exit(0)
		v := r.attach(t, nil)
		want[protocol.Exited](v) // the end is seen at once
		if time.Since(start) != 0 {
			t.Error("viewers waited for leftovers")
		}
		<-r.life.gone
		if took := time.Since(start); took < killAfter || took > killAfter+sweepEvery || r.proc.leftover != 0 {
			t.Errorf("took %v, %d left", took, r.proc.leftover)
		}
	})
}

func TestNextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := v.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, v.Close)
		if _, err := v.Next(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
		v.Close() // harmless
		for range arbiter.MaxStreams {
			r.attach(t, nil)
		}
		_, _, err := r.Attach(protocol.TerminalParams{})
		if protocol.KindOf(protocol.AsError(err)) != protocol.KindTooMany {
			t.Fatal(err)
		}
	})
}

func TestOutboxIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		for range arbiter.MaxOutbox + 1 {
			v.Post(protocol.Granted{Refused: "no"})
		}
		_, err := v.Next(t.Context())
		if err == nil || protocol.KindOf(err) != protocol.KindTooMany {
			t.Fatal(err)
		}
	})
}

func TestPost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.Post(protocol.Granted{GrantID: "gr_1"})
		if m := want[protocol.Granted](v); m.GrantID != "gr_1" {
			t.Fatalf("%+v", m)
		}
	})
}
