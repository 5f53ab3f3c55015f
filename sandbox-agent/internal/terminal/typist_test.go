package terminal

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// typing is a TypeFor under way.
func (r *stageRig) typing(t *testing.T, by arbiter.Typist, text string) chan error {
	done := make(chan error, 1)
	go func() { done <- r.host.TypeFor(t.Context(), session, "pty_1", by, []byte(text)) }()
	synctest.Wait()
	return done
}

func person(user protocol.UserID) arbiter.Typist {
	return arbiter.Typist{Grant: grantOf(user, "gr_"+protocol.GrantID(user), time.Hour, protocol.CapControl)}
}

// TestTypeFor: control is taken for the time it takes, seen by all, and Enter
// comes by itself.
func TestTypeFor(t *testing.T) {
	for name, by := range map[string]arbiter.Typist{"program": elsewhere, "person": person(bob)} {
		t.Run(name, func(t *testing.T) {
			stageBubble(t, func(t *testing.T, r *stageRig) {
				v := r.attach(t, nil)
				begun := time.Now()
				r.dev.setRoom(3)
				done := r.typing(t, by, "hello\r")
				holder := by.Holder().Holder
				held := v.wantLease(holder, 1)
				if held.State != protocol.LeaseHeld || held.GrantID != by.Holder().GrantID {
					t.Errorf("%+v", held)
				}
				second := r.typing(t, by, "second")
				v.nothing() // it waits for its turn
				r.dev.setRoom(100)
				synctest.Wait()
				if got := r.dev.take(); got != "hello" || time.Since(begun) > 0 {
					t.Errorf("%q after %v", got, time.Since(begun))
				}
				must(t, <-done)
				if got := time.Since(begun); got != arbiter.EnterDelay {
					t.Errorf("it took %v", got)
				}
				v.wantLease("", 1)
				v.wantLease(holder, 2)
				must(t, <-second)
				v.wantLease("", 2)
				if got := r.dev.take(); got != "\rsecond" {
					t.Errorf("%q", got)
				}
				v.nothing()
			})
		})
	}
}

// TestTypeForRefused: who has control is named, and nothing is typed.
func TestTypeForRefused(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		refused := func(by arbiter.Typist, text string, kind protocol.Kind, words string) {
			t.Helper()
			err := r.host.TypeFor(t.Context(), session, "pty_1", by, []byte(text))
			wantRefusal(t, err, kind, words)
		}
		must(t, r.host.TypeFor(t.Context(), session, "pty_1", person(bob), []byte("free")))
		r.dev.take()
		refused(elsewhere, "", protocol.KindInvalid, "nothing")
		refused(elsewhere, strings.Repeat("x", maxTypedBytes+1), protocol.KindTooLarge, "over")
		refused(arbiter.Typist{PTY: "pty_1"}, "x", protocol.KindForbidden, "own terminal")
		refused(arbiter.Typist{Grant: grantOf(bob, "gr_b", time.Hour)}, "x", protocol.KindForbidden, "does not allow")
		other := grantOf(bob, "gr_b", time.Hour, protocol.CapControl)
		other.PTYs = []string{"pty_2"}
		refused(arbiter.Typist{Grant: other}, "x", protocol.KindForbidden, "does not allow")
		refused(arbiter.Typist{Grant: grantOf(bob, "gr_b", -time.Second, protocol.CapControl)}, "x", protocol.KindForbidden, "does not allow")
		refused(arbiter.Typist{Grant: grantOf(protocol.AgentHolder, "gr_b", time.Hour, protocol.CapControl)}, "x", protocol.KindForbidden, "does not allow")
		r.host.RevokeGrants("gr_void")
		refused(arbiter.Typist{Grant: grantOf(bob, "gr_void", time.Hour, protocol.CapControl)}, "x", protocol.KindUnauthenticated, "revoked")
		wantKind(t, r.host.TypeFor(t.Context(), "ses_2", "pty_1", elsewhere, []byte("x")), protocol.KindNotFound)

		v := r.attach(t, nil)
		v.propose(alice)
		refused(person(bob), "x", protocol.KindConflict, string(alice))
		refused(elsewhere, "x", protocol.KindConflict, string(alice))
		must(t, r.host.TypeFor(t.Context(), session, "pty_1", person(alice), []byte("mine")))
		if l := r.lease(); l.Holder != alice {
			t.Errorf("%+v", l)
		}
		v.Holder(protocol.Holder{User: alice, Sockets: 0})
		refused(elsewhere, "x", protocol.KindConflict, string(alice)) // they may come back
		time.Sleep(protocol.ControlGrace)
		must(t, r.host.TypeFor(t.Context(), session, "pty_1", elsewhere, []byte(" again")))
		if got := r.dev.take(); got != "mine again" {
			t.Errorf("%q", got)
		}
		cli := r.start(t)
		refused(person(alice), "x", protocol.KindConflict, robot+" has control")
		refused(elsewhere, "x", protocol.KindConflict, robot+" has control")
		r.ready(t)
		must(t, r.host.TypeFor(t.Context(), session, "pty_1", elsewhere, []byte("a prompt\r")))
		if got := cli.dev.take(); got != "a prompt\r" {
			t.Errorf("%q", got)
		}
		cli.quit(0)
		r.host.end(0)
		refused(elsewhere, "x", protocol.KindEnded, "ended")
		if got := r.dev.take(); got != "" {
			t.Errorf("typed %q", got)
		}
	})
}

// TestTypeForCut: control goes to somebody else in the middle, or what is in
// front changes: the rest isn't typed, and nobody is left with control that was
// lent.
func TestTypeForCut(t *testing.T) {
	for name, tt := range map[string]struct {
		cut    func(t *testing.T, r *stageRig, v *viewer)
		kind   protocol.Kind
		holder protocol.UserID // afterwards
	}{
		"taken": {func(t *testing.T, r *stageRig, v *viewer) {
			v.propose(alice)
		}, protocol.KindConflict, alice},
		"agent begins": {func(t *testing.T, r *stageRig, v *viewer) {
			r.begin(t)
		}, protocol.KindConflict, protocol.AgentHolder},
		"agent begins and is done": {func(t *testing.T, r *stageRig, v *viewer) {
			v.Holder(protocol.Holder{User: bob, Sockets: 1})
			r.begin(t)
			r.finish(t, "")
		}, protocol.KindConflict, ""},
		"agent ends": {func(t *testing.T, r *stageRig, v *viewer) {
			r.host.launched[1].quit(0)
		}, protocol.KindConflict, ""},
		"terminal ends": {func(t *testing.T, r *stageRig, v *viewer) {
			r.host.launched[1].quit(0)
			r.host.end(0)
		}, protocol.KindConflict, ""},
		"not read": {func(t *testing.T, r *stageRig, v *viewer) {
			time.Sleep(arbiter.GivenBackAfter)
		}, protocol.KindUnavailable, ""},
		"between text and Enter": {func(t *testing.T, r *stageRig, v *viewer) {
			r.host.launched[1].dev.setRoom(100)
			time.Sleep(arbiter.EnterDelay / 2)
			r.host.launched[1].quit(0)
		}, protocol.KindConflict, ""},
	} {
		for by, typist := range map[string]arbiter.Typist{"program": elsewhere, "person": person(bob)} {
			t.Run(name+" "+by, func(t *testing.T) {
				stageBubble(t, func(t *testing.T, r *stageRig) {
					v := r.attach(t, nil)
					cli := r.start(t)
					r.ready(t)
					cli.dev.setRoom(2)
					done := r.typing(t, typist, "hello\r")
					for m, err := v.Poll(); m != nil && err == nil; m, err = v.Poll() {
					}
					tt.cut(t, r, v)
					wantKind(t, <-done, tt.kind)
					time.Sleep(time.Minute)
					cli.dev.setRoom(100)
					synctest.Wait()
					if got := cli.dev.take(); got != "he" && name != "between text and Enter" {
						t.Errorf("typed %q", got)
					}
					if got := r.dev.take(); got != "" {
						t.Errorf("the shell got %q", got)
					}
					if l := r.lease(); l.Holder != tt.holder {
						t.Errorf("%+v, want %q", l, tt.holder)
					}
				})
			})
		}
	}
}

// TestSeatIsLeft: who waits in vain for others to type leaves.
func TestSeatIsLeft(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		r.dev.setRoom(0)
		first := r.typing(t, elsewhere, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantRefusal(t, r.host.TypeFor(ctx, session, "pty_1", elsewhere, []byte("y")), protocol.KindUnavailable, "others")
		if err := <-first; protocol.KindOf(err) != protocol.KindUnavailable {
			t.Error(err)
		}
	})
}
