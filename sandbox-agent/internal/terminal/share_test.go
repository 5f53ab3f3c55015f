package terminal

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/shell"
)

// shares takes what v is told and returns the SHARED among it.
func shares(v *viewer) (told []protocol.Share) {
	synctest.Wait()
	for {
		m, err := v.Poll()
		if err != nil || m == nil {
			return told
		}
		if m, ok := m.(protocol.Shared); ok {
			told = append(told, m.With)
		}
	}
}

// TestShare: a terminal is open to whom somebody named last, which everybody sees,
// and to nobody before.
func TestShare(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		for _, id := range []protocol.PTYID{"pty_1", "pty_2", "pty_3"} {
			h.create(t, id)
		}
		term, err := h.Get(session, "pty_1")
		must(t, err)
		v := attach(t, term, nil)
		now := v.opened.Shared
		for _, with := range []protocol.Share{protocol.ShareNone, "pty_2", "pty_2", protocol.ShareSession, "pty_3", protocol.ShareNone, protocol.ShareNone} {
			must(t, h.Share(session, "pty_1", with))
			if told := shares(v); with != now && !slices.Equal(told, []protocol.Share{with}) || with == now && len(told) > 0 {
				t.Errorf("from %q to %q: told %q", now, with, told)
			}
			now = with
			if info := term.Info().Shared; info != with && (info != "" || with != protocol.ShareNone) {
				t.Errorf("the list says %q, want %q", info, with)
			}
			for _, id := range []protocol.PTYID{"pty_2", "pty_3"} {
				open := with == protocol.ShareSession || with == protocol.Share(id)
				err := h.TypeFor(t.Context(), session, "pty_1", arbiter.Typist{PTY: id}, []byte("x"))
				if h.OpenTo(session, "pty_1", id) != open || (err == nil) != open || !open && protocol.KindOf(err) != protocol.KindForbidden {
					t.Errorf("open to %q: %s types: %v", with, id, err)
				}
				_, err = h.Run(t.Context(), session, "pty_1", arbiter.Typist{PTY: id}, "ls") // which is no shell
				if (protocol.KindOf(err) != protocol.KindForbidden) != open {
					t.Errorf("open to %q: %s runs: %v", with, id, err)
				}
			}
			if !h.OpenTo(session, "pty_1", "pty_1") || h.OpenTo("ses_2", "pty_1", "pty_2") {
				t.Error("closed to itself, or open from another session")
			}
		}
		wantKind(t, h.Share(session, "pty_1", "pty_1"), protocol.KindInvalid)
		wantKind(t, h.Share(session, "pty_1", "*"), protocol.KindInvalid)
		wantKind(t, h.Share(session, "pty_1", "pty_none"), protocol.KindNotFound)
		wantKind(t, h.Share(session, "pty_none", protocol.ShareSession), protocol.KindNotFound)
		wantKind(t, h.Share("ses_2", "pty_1", protocol.ShareSession), protocol.KindNotFound)
	})
}

// TestShareCutsOff: when Share returns, nothing more gets through of who types
// and no longer may, and they don't keep control.
func TestShareCutsOff(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		r.host.create(t, "pty_other")
		r.host.create(t, "pty_third")
		r.dev.setRoom(2)
		done := r.typing(t, elsewhere, "four\r")
		must(t, r.host.Share(session, "pty_1", "pty_other")) // it still may
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("cut off though it may: %v", err)
		default:
		}
		must(t, r.host.Share(session, "pty_1", "pty_third"))
		r.dev.setRoom(100)
		wantRefusal(t, <-done, protocol.KindForbidden, "not open")
		synctest.Wait()
		if got := r.dev.take(); got != "fo" {
			t.Errorf("typed %q", got)
		}
		if v := r.attach(t, nil); v.opened.Lease.State != protocol.LeaseFree || v.opened.Shared != "pty_third" {
			t.Errorf("%+v", v.opened)
		}
	})
}

// TestShareEndsWithTheGuest: whoever gets the name of a terminal that has ended
// doesn't get what was open to it.
func TestShareEndsWithTheGuest(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		h.create(t, "pty_1")
		h.create(t, "pty_2")
		h.create(t, "pty_3")
		must(t, h.Share(session, "pty_1", "pty_2"))
		must(t, h.Share(session, "pty_3", protocol.ShareSession))
		h.launched[1].proc.exit(0)
		must(t, h.Close(session, "pty_2"))
		wantKind(t, h.Share(session, "pty_1", "pty_2"), protocol.KindNotFound)
		h.create(t, "pty_2")
		if h.OpenTo(session, "pty_1", "pty_2") {
			t.Error("it is open to a terminal of the same name")
		}
		if !h.OpenTo(session, "pty_3", "pty_2") {
			t.Error("what is open to the session is closed")
		}
		h.launched[3].proc.exit(0)
		time.Sleep(2 * drainFor)
		wantKind(t, h.Share(session, "pty_1", "pty_2"), protocol.KindEnded)
	})
}

// TestShareEndsBetween: a program that has just been let in types nothing if it
// is out again by then.
func TestShareEndsBetween(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		open, leave, err := r.arbiter.WhileOpen(t.Context(), elsewhere)
		must(t, err)
		defer leave()
		seat, err := r.arbiter.Sit(open, elsewhere)
		must(t, err)
		defer seat.Leave()
		must(t, seat.Take(nil))
		must(t, r.host.Share(session, "pty_1", protocol.ShareNone))
		if err := seat.Type(open, []byte("x")); err == nil || r.dev.take() != "" {
			t.Errorf("typed: %v", err)
		}
	})
}

// TestShareEndsARun: a program whose command runs on learns nothing of it once it
// is shut out.
func TestShareEndsARun(t *testing.T) {
	shells(t, func(t *testing.T, h *Host, id protocol.PTYID) {
		if _, err := runs(t, h, id, elsewhere, "true"); err != nil { // it is at its prompt
			t.Fatal(err)
		}
		type outcome struct {
			shell.Result
			error
		}
		ended := make(chan outcome, 1)
		go func() { // received below
			r, err := runs(t, h, id, elsewhere, "echo begun-$((1+1)); read x")
			ended <- outcome{r, err}
		}()
		look := time.NewTicker(10 * time.Millisecond)
		defer look.Stop()
		for range look.C {
			text, _, err := h.Screen(session, id, 0)
			must(t, err)
			if strings.Contains(text, "begun-2") {
				break
			}
		}
		must(t, h.Share(session, id, protocol.ShareNone))
		if got := <-ended; got.error != arbiter.ErrNotOpen || got.Result != (shell.Result{}) {
			t.Errorf("%+v", got)
		}
	})
}
