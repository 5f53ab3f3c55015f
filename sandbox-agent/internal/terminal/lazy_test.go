package terminal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// lazy creates a terminal that waits for its first byte, and a viewer who holds
// control of it under the term that is returned.
func (h *fakeHost) lazy(t *testing.T, on op.OnDetach) (*viewer, uint64) {
	t.Helper()
	_, err := h.Create(t.Context(), session, "pty_1", op.PTYCreate{CreatorID: alice, Spawn: op.SpawnLazy, OnDetach: on})
	must(t, err)
	term, err := h.Get(session, "pty_1")
	must(t, err)
	v := attach(t, term, nil)
	return v, v.propose(alice).Lease.Term
}

// launches returns how many programs were started.
func (h *fakeHost) launches() int {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.launched)
}

// waits checks that nothing was started yet.
func (h *fakeHost) waits(t *testing.T, after string) {
	t.Helper()
	if n := h.launches(); n != 0 || !h.List(session)[0].Waiting || h.Counts().Waiting != 1 {
		t.Fatalf("%s has started %d programs: %+v", after, n, h.List(session))
	}
}

// TestLazy: nothing but the first byte that may be written starts the program, at
// the size of that moment, and the program gets it.
func TestLazy(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		v, term := h.lazy(t, "")
		h.waits(t, "watching")
		if all := h.Running(); len(all) != 1 || all[0].PID != 0 {
			t.Errorf("%+v", all)
		}
		v.Resize(protocol.Resize{Term: term, Cols: 100, Rows: 30})
		v.Resize(protocol.Resize{Term: term + 1, Cols: 1, Rows: 1})
		time.Sleep(time.Second)
		h.waits(t, "a resize")
		must(t, h.Resize(session, "pty_1", 120, 40))
		h.waits(t, "a resize by command")
		v.WantKeyframe(true)
		h.waits(t, "a keyframe")
		v.typed(term+1, 1, "under no lease")
		h.waits(t, "input that is refused")
		wantKind(t, h.Signal(session, "pty_1", "INT"), protocol.KindConflict)
		h.waits(t, "a signal")
		must(t, h.ApplyEnv(session, "pty_1", []byte("X=1\n")))
		h.waits(t, "an environment")
		v.typed(term, 2, "a")
		v.typed(term, 3, "bc")
		if n := h.launches(); n != 1 {
			t.Fatalf("%d programs were started", n)
		}
		r, plan := h.launched[0], h.plans[0]
		if plan.Cols != 120 || plan.Rows != 40 {
			t.Errorf("it began at %d×%d", plan.Cols, plan.Rows)
		}
		if got := r.dev.take(); got != "abc" {
			t.Errorf("it got %q", got)
		}
		r.print("hello")
		for {
			m := v.next()
			if data, ok := m.(protocol.Data); ok {
				if string(data.Bytes) != "hello" {
					t.Errorf("%q", data.Bytes)
				}
				break
			}
		}
		if info := h.List(session)[0]; info.Waiting || info.Spawn != "lazy" {
			t.Errorf("%+v", info)
		}
		must(t, h.Resize(session, "pty_1", 90, 20))
		time.Sleep(arbiter.ResizeEvery)
		synctest.Wait()
		if sizes := r.dev.sized(); sizes[len(sizes)-1] != [2]int{90, 20} {
			t.Errorf("sizes %v", sizes)
		}
		must(t, h.Close(session, "pty_1"))
	})
}

// TestLazyIsClosed: closed, abandoned or shut down before its first byte, a
// terminal has never run anything, and says that it is over.
func TestLazyIsClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		on op.OnDetach
		do func(h *fakeHost, v *viewer) error
		by string
	}{
		"closed":    {"", func(h *fakeHost, _ *viewer) error { return h.Close(session, "pty_1") }, "SIGHUP"},
		"left":      {op.DetachClose, func(_ *fakeHost, v *viewer) error { v.audience(0); return nil }, "SIGINT"},
		"forgotten": {"1s", func(_ *fakeHost, v *viewer) error { v.audience(0); return nil }, "SIGHUP"},
		"deleted":   {"", func(h *fakeHost, _ *viewer) error { h.CloseSession(session); return nil }, "SIGHUP"},
	} {
		t.Run(name, func(t *testing.T) {
			hostBubble(t, func(t *testing.T, h *fakeHost) {
				v, term := h.lazy(t, tt.on)
				must(t, tt.do(h, v))
				if m := want[protocol.Exited](v); m.Signal != tt.by || m.Code != -1 {
					t.Errorf("%+v", m)
				}
				v.typed(term, 1, "too late")
				<-v.terminal.life.gone
				if n := h.launches(); n != 0 {
					t.Errorf("%d programs were started", n)
				}
			})
		})
	}
}

// TestLazyCannotStart: it says so in the terminal, which ends.
func TestLazyCannotStart(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		v, term := h.lazy(t, "")
		h.fail = protocol.Errorf(protocol.KindUnavailable, "no more PTYs")
		v.typed(term, 1, "a")
		v.typed(term, 2, "b")
		synctest.Wait()
		var said strings.Builder
		var refused int
		for {
			switch m := v.next().(type) {
			case protocol.Data:
				said.Write(m.Bytes)
				continue
			case protocol.InputRefused:
				if refused++; m.Reason != protocol.RefusedEnded {
					t.Errorf("%+v", m)
				}
				continue
			case protocol.Exited:
				if m.Code != 126 || refused != 2 || !strings.Contains(said.String(), "no more PTYs") {
					t.Errorf("%+v after %d refusals: %q", m, refused, said.String())
				}
			}
			break
		}
		h.fail = nil
		<-v.terminal.life.gone
		if n := h.launches(); n != 0 {
			t.Errorf("%d programs were started", n)
		}
	})
	hostBubble(t, func(t *testing.T, h *fakeHost) { // what nobody outside is to know stays in the log
		v, term := h.lazy(t, "")
		h.fail = errors.New("open /var/lib/agent/secret")
		v.typed(term, 1, "a")
		var said strings.Builder
		for ended := false; !ended; {
			switch m := v.next().(type) {
			case protocol.Data:
				said.Write(m.Bytes)
			case protocol.Exited:
				ended = true
			}
		}
		if strings.Contains(said.String(), "secret") || !strings.Contains(said.String(), "can't be started") {
			t.Errorf("it said %q", said.String())
		}
	})
}

// TestLazyBehindAgent: a coding agent may come in front of what hasn't started, and
// has the keys; after it the first key starts the terminal's own program.
func TestLazyBehindAgent(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		v, _ := h.lazy(t, "")
		_, err := h.StartAgent(t.Context(), session, "pty_1", op.AgentStart{Command: "/bin/true", Name: "tool"})
		must(t, err)
		if n := h.launches(); n != 1 {
			t.Fatalf("%d programs were started", n)
		}
		h.launched[0].print("agent")
		h.end(0)
		time.Sleep(redrawAfter)
		if n := h.launches(); n != 1 || !h.List(session)[0].Waiting {
			t.Fatalf("%d programs were started", n)
		}
		v.typed(v.terminal.arbiter.Lease().Term, 1, "x")
		if n := h.launches(); n != 2 || h.launched[1].dev.take() != "x" {
			t.Fatalf("%d programs were started", n)
		}
	})
}

// TestLazyEnviron: the program has the variables of the moment at which it starts,
// and doesn't start where there are none to be had. Nothing is left of it then.
func TestLazyEnviron(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		o := owned(h.Host)
		o.set("WHEN=made")
		v, term := h.lazy(t, "")
		o.set("WHEN=typed")
		v.typed(term, 1, "x")
		if n := h.launches(); n != 1 || !slices.Contains(h.plans[0].Env, "WHEN=typed") || slices.Contains(h.plans[0].Env, "WHEN=made") {
			t.Errorf("%d programs: %v", n, h.plans)
		}
		must(t, h.Close(session, "pty_1"))
		v, term = h.lazy(t, "")
		o.mu.Lock()
		o.err, o.calls = protocol.Errorf(protocol.KindUnavailable, "no way to the network"), nil
		o.mu.Unlock()
		v.typed(term, 1, "x")
		<-v.terminal.life.gone
		if n := h.launches(); n != 1 {
			t.Errorf("%d programs", n)
		}
		if want := []called{{"start", "pty_1", -1}, {"end", "pty_1", -1}}; !slices.Equal(o.calls, want) {
			t.Errorf("calls %+v", o.calls)
		}
	})
}
