package terminal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// A fakeHost is a host over fakes.
type fakeHost struct {
	*Host
	mu       sync.Mutex
	launched []*rig
	plans    []pty.Launch // of them
	fail     error
}

func newFakeHost(t *testing.T, change ...func(*Config)) *fakeHost {
	t.Helper()
	h := new(fakeHost)
	dir := t.TempDir()
	var err error
	config := Config{Workspace: filepath.Join(dir, "workspace"), Homes: filepath.Join(dir, "homes"), Isolation: IsolationNone}
	for _, f := range change {
		f(&config)
	}
	h.Host, err = newHost(config, h.start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Shutdown(context.Background()) })
	return h
}

func (h *fakeHost) start(l pty.Launch) (pty.Device, pty.Child, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		return nil, nil, h.fail
	}
	r := &rig{dev: newFakeDevice(), proc: newFakeProcess()}
	h.launched, h.plans = append(h.launched, r), append(h.plans, l)
	return r.dev, r.proc, nil
}

// end ends the nth program by itself.
func (h *fakeHost) end(n int) {
	close(h.launched[n].dev.output)
	h.launched[n].proc.exit(0)
	synctest.Wait()
}

func (h *fakeHost) create(t *testing.T, id protocol.PTYID) protocol.PTYInfo {
	t.Helper()
	info, err := h.Create(t.Context(), session, id, op.PTYCreate{CreatorID: alice})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func hostBubble(t *testing.T, f func(t *testing.T, h *fakeHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFakeHost(t)) })
}

func wantKind(t *testing.T, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Errorf("error %v; want kind %s", err, kind)
	}
}

func TestCreate(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		info := h.create(t, "pty_mine")
		if info.ID != "pty_mine" || info.CreatorID != alice || info.Cols != 80 || info.Rows != 24 || info.Command == "" || info.CreatedAt == 0 {
			t.Errorf("%+v", info)
		}
		made := h.create(t, "")
		if !protocol.ValidID(made.ID) {
			t.Errorf("id %q", made.ID)
		}
		_, err := h.Create(t.Context(), "ses_2", "pty_mine", op.PTYCreate{})
		wantKind(t, err, protocol.KindConflict)
		_, err = h.Create(t.Context(), session, "../x", op.PTYCreate{})
		wantKind(t, err, protocol.KindInvalid)
		h.fail = errors.New("no more PTYs")
		_, err = h.Create(t.Context(), session, "pty_3", op.PTYCreate{})
		wantKind(t, err, protocol.KindInternal)
		h.fail = nil
		h.create(t, "pty_3") // the failure left nothing
		big, err := h.Create(t.Context(), session, "pty_big", op.PTYCreate{Cols: 5000, Rows: 1})
		if err != nil || big.Cols != protocol.MaxCols || big.Rows != 1 {
			t.Errorf("%+v, %v", big, err)
		}
	})
}

func TestSessionsAreApart(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		h.create(t, "pty_1")
		_, err := h.Get("ses_2", "pty_1")
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, h.Close("ses_2", "pty_1"), protocol.KindNotFound)
		wantKind(t, h.Signal("ses_2", "pty_1", "INT"), protocol.KindNotFound)
		if got := h.List("ses_2"); got == nil || len(got) != 0 {
			t.Errorf("%+v", got)
		}
		h.CloseSession("ses_2")
		if got := h.List(session); len(got) != 1 || got[0].Exited != nil {
			t.Errorf("%+v", got)
		}
	})
}

func TestMaxPTYs(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		for i := range protocol.MaxPTYs {
			h.create(t, protocol.PTYID(fmt.Sprintf("pty_%d", i)))
		}
		_, err := h.Create(t.Context(), session, "pty_x", op.PTYCreate{})
		wantKind(t, err, protocol.KindTooMany)
		h.end(0)
		h.create(t, "pty_x")
	})
}

// TestEndedStayListed shows for how long, and how many.
func TestEndedStayListed(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		for i := range maxEnded + 2 {
			h.create(t, protocol.PTYID(fmt.Sprintf("pty_%02d", i)))
			time.Sleep(time.Second)
		}
		for i := range maxEnded + 1 {
			h.end(i)
			time.Sleep(time.Second)
		}
		list := h.List(session)
		if len(list) != maxEnded+1 || list[0].ID != "pty_01" || list[0].Exited == nil || list[maxEnded].Exited != nil {
			t.Errorf("%d listed: %+v", len(list), list)
		}
		_, err := h.Create(t.Context(), session, "pty_01", op.PTYCreate{})
		wantKind(t, err, protocol.KindConflict)
		time.Sleep(keepEnded)
		if list := h.List(session); len(list) != 1 || list[0].ID != "pty_17" {
			t.Errorf("%d listed: %+v", len(list), list)
		}
		h.create(t, "pty_01")
	})
}

func TestClose(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		h.create(t, "pty_1")
		home := filepath.Join(h.config.Homes, "pty_1")
		if _, err := os.Stat(filepath.Join(home, ".bashrc")); err != nil {
			t.Error(err)
		}
		term, err := h.Get(session, "pty_1")
		if err != nil {
			t.Fatal(err)
		}
		v := attach(t, term, nil)
		if err := h.Close(session, "pty_1"); err != nil {
			t.Fatal(err)
		}
		if m := want[protocol.Exited](v); m.Signal != "SIGHUP" {
			t.Errorf("%+v", m)
		}
		if _, err := os.Stat(home); !os.IsNotExist(err) {
			t.Errorf("the home is left: %v", err)
		}
		_, err = h.Get(session, "pty_1")
		wantKind(t, err, protocol.KindNotFound)
		h.create(t, "pty_1")
		h.create(t, "pty_2")
		start := time.Now()
		h.CloseSession(session)
		if took := time.Since(start); took != drainFor {
			t.Errorf("closed one after the other, in %v", took)
		}
		if list := h.List(session); len(list) != 0 {
			t.Errorf("%+v", list)
		}
	})
}

func TestShutdown(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, 0} {
		hostBubble(t, func(t *testing.T, h *fakeHost) {
			h.create(t, "pty_1")
			h.create(t, "pty_2")
			h.launched[1].proc.stubborn = true
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			h.Shutdown(ctx)
			if took := time.Since(start); took != patience+drainFor {
				t.Errorf("with a patience of %v it took %v", patience, took)
			}
			_, err := h.Create(t.Context(), session, "pty_3", op.PTYCreate{})
			wantKind(t, err, protocol.KindUnavailable)
			if list := h.List(session); len(list) != 2 || list[1].Exited.Signal != "SIGKILL" {
				t.Errorf("%+v", list)
			}
		})
	}
}

func TestNewHost(t *testing.T) {
	dir := t.TempDir()
	config := Config{Workspace: filepath.Join(dir, "a/workspace"), Homes: filepath.Join(dir, "a/homes")}
	h, err := NewHost(config)
	if err != nil {
		t.Fatal(err)
	}
	if root := os.Geteuid() == 0; (h.Isolation() == IsolationUID) != root {
		t.Errorf("isolation %s", h.Isolation())
	} else if root {
		st, err := os.Stat(config.Workspace)
		if err != nil {
			t.Fatal(err)
		}
		if gid := st.Sys().(*syscall.Stat_t).Gid; st.Mode() != os.ModeDir|os.ModeSetgid|0o770 || gid != DefaultGID {
			t.Errorf("workspace %v of group %d", st.Mode(), gid)
		}
	}
	config.Isolation = "jail"
	if _, err := NewHost(config); err == nil {
		t.Error("unknown isolation was accepted")
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewHost(Config{Workspace: filepath.Join(dir, "file/x"), Homes: dir}); err == nil {
		t.Error("an impossible workspace was accepted")
	}
}

// A terminal's program may ask for something before the terminal is listed: whoever
// asks whose it is waits for that.
func TestAQuickProgram(t *testing.T) {
	for name, fail := range map[string]error{"it starts": nil, "it fails": errors.New("no PTY")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHost(t)
				h.fail = fail
				asked, launched := make(chan bool, 1), h.launch
				h.launch = func(l pty.Launch) (pty.Device, pty.Child, error) {
					go func() { // received below
						_, ok := h.UID(session, "pty_quick")
						asked <- ok
					}()
					synctest.Wait()
					if len(asked) != 0 {
						t.Error("it was answered while the terminal was being started")
					}
					return launched(l)
				}
				if _, err := h.Create(context.Background(), session, "pty_quick", op.PTYCreate{}); (err != nil) != (fail != nil) {
					t.Fatal(err)
				}
				if ok := <-asked; ok != (fail == nil) {
					t.Errorf("it has a user: %t", ok)
				}
				h.Shutdown(context.Background())
			})
		})
	}
}
