package lifetime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func grant(id protocol.GrantID, life time.Duration) *jws.Grant {
	return &jws.Grant{ID: id, Subject: "usr_alice", ExpiresAt: time.Now().Add(life).Unix()}
}

// A told is what something was told of its end.
type told struct {
	mu     sync.Mutex
	causes []error // guarded by mu
}

func (w *told) end(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.causes = append(w.causes, cause)
}

func (w *told) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprint(w.causes)
}

func begin(t *testing.T, g *Grants, grant *jws.Grant) (*Use, *told) {
	t.Helper()
	w := &told{}
	u, err := g.Begin(grant, w.end)
	if err != nil {
		t.Fatal(err)
	}
	return u, w
}

const (
	expired = "[the grant has expired]"
	revoked = "[access was revoked]"
)

// TestExpires: a use ends at its grant's time, not before, and is told once.
func TestExpires(t *testing.T) {
	for _, skew := range []time.Duration{0, jws.Skew} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Options{Skew: skew})
			short, first := begin(t, g, grant("gr_1", time.Minute))
			defer short.Stop()
			long, second := begin(t, g, grant("gr_2", time.Hour))
			defer long.Stop()
			time.Sleep(time.Minute + skew - time.Nanosecond)
			synctest.Wait()
			if first.String() != "[]" {
				t.Errorf("before its time: %s", first)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if first.String() != expired || second.String() != "[]" {
				t.Errorf("at its time: %s, %s", first, second)
			}
			if _, err := g.Begin(grant("gr_3", -skew), nil); err != ErrExpired {
				t.Errorf("an old grant: %v", err)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if first.String() != expired || second.String() != expired {
				t.Errorf("after all: %s, %s", first, second)
			}
		})
	}
}

// TestRevoked: a use ends before the revocation returns, and only that one; and
// once more for each later change, until it is stopped.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := jws.NewRevocationSet()
		g := New(Options{Revoked: set})
		one, first := begin(t, g, grant("gr_1", time.Minute))
		two, second := begin(t, g, grant("gr_2", time.Minute))
		defer two.Stop()
		set.Add("gr_1")
		if first.String() != revoked || second.String() != "[]" {
			t.Errorf("%s, %s", first, second)
		}
		if _, err := g.Begin(grant("gr_1", time.Minute), nil); err != ErrRevoked {
			t.Errorf("a void grant: %v", err)
		}
		one.Stop()
		one.Stop()
		set.Add("gr_1")
		time.Sleep(time.Minute)
		synctest.Wait()
		if first.String() != revoked || second.String() != expired {
			t.Errorf("%s, %s", first, second)
		}
	})
}

// TestRenew: a use goes on under its newer grant.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := jws.NewRevocationSet()
		g := New(Options{Revoked: set})
		u, w := begin(t, g, grant("gr_1", time.Minute))
		defer u.Stop()
		for _, bad := range []*jws.Grant{grant("gr_0", 0), grant("gr_void", time.Hour)} {
			set.Add("gr_void")
			if err := u.Renew(bad); err == nil {
				t.Errorf("renewed by %s", bad.ID)
			}
		}
		if err := u.Renew(grant("gr_2", 2*time.Minute)); err != nil {
			t.Fatal(err)
		}
		set.Add("gr_1")
		time.Sleep(2*time.Minute - time.Second)
		synctest.Wait()
		if w.String() != "[]" {
			t.Errorf("ended with its old grant: %s", w)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if w.String() != expired {
			t.Errorf("%s", w)
		}
		if err := u.Renew(grant("gr_3", time.Second)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if w.String() != "[the grant has expired the grant has expired]" {
			t.Errorf("after a late renewal: %s", w)
		}
	})
}

// TestClockJumps: the clock of the wall is looked at every second, and may be put
// back.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var later atomic.Int64
		g := New(Options{Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
		u, w := begin(t, g, grant("gr_1", time.Hour))
		defer u.Stop()
		later.Store(int64(time.Hour))
		time.Sleep(checkEvery)
		synctest.Wait()
		if w.String() != expired {
			t.Errorf("%s", w)
		}
		later.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.String() != "[the grant has expired the grant has expired]" {
			t.Errorf("after the clock was put back: %s", w)
		}
	})
}

// TestContext: the cause says why a context ends.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := jws.NewRevocationSet()
		g := New(Options{Revoked: set})
		ctx, cancel := context.WithCancelCause(t.Context())
		left := errors.New("left")
		var all []context.Context
		for i := range 4 {
			under, stop := g.Context(ctx, grant(protocol.GrantID(fmt.Sprintf("gr_%d", i)), time.Duration(i+1)*time.Minute))
			all = append(all, under)
			if i == 2 {
				stop()
			} else {
				defer stop()
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		set.Add("gr_1")
		cancel(left)
		for i, want := range []error{ErrExpired, ErrRevoked, context.Canceled, left} {
			if cause := context.Cause(all[i]); cause != want {
				t.Errorf("%d: %v, want %v", i, cause, want)
			}
		}
		void, stop := g.Context(t.Context(), grant("gr_1", time.Minute))
		defer stop()
		if context.Cause(void) != ErrRevoked {
			t.Errorf("a void grant: %v", context.Cause(void))
		}
	})
}

// TestEndMayStop: end may call the Use and the Grants, whose lock is not held.
func TestEndMayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		began := make(chan *Use, 1)
		u, err := g.Begin(grant("gr_1", time.Second), func(error) {
			(<-began).Stop()
			if next, err := g.Begin(grant("gr_2", time.Hour), nil); err != nil {
				t.Error(err)
			} else {
				next.Stop()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		began <- u
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(g.uses) != 0 {
			t.Errorf("%d uses are left", len(g.uses))
		}
	})
}

// TestModel: whatever begins, is renewed, revoked and stopped, each use ends
// exactly when its grant does.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct{ what, which, seconds int }
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{rapid.IntRange(0, 5).Draw(t, "what"), rapid.IntRange(0, 7).Draw(t, "which"), rapid.IntRange(1, 90).Draw(t, "seconds")}
		}), 1, 50).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			type use struct {
				*Use
				told  *told
				grant *jws.Grant
				over  string // what it was told; empty: nothing yet
			}
			set := jws.NewRevocationSet()
			g := New(Options{Revoked: set})
			var uses []*use
			pick := func(i int) *use {
				if len(uses) == 0 {
					return nil
				}
				return uses[i%len(uses)]
			}
			for i, s := range steps {
				next := grant(protocol.GrantID(fmt.Sprintf("gr_%d", i)), time.Duration(s.seconds)*time.Second)
				u := pick(s.which)
				switch {
				case s.what < 2:
					began, w := begin(t, g, next)
					uses = append(uses, &use{Use: began, told: w, grant: next})
				case u == nil:
				case s.what == 2 && u.over == "":
					if err := u.Renew(next); err != nil {
						t.Fatal(err)
					}
					u.grant = next
				case s.what == 3 && u.over == "":
					set.Add(u.grant.ID)
					u.over = revoked
					u.Stop()
				case s.what == 4:
					u.Stop()
					if u.over == "" {
						u.over = "[]"
					}
				default:
					time.Sleep(time.Duration(s.seconds) * time.Second)
					synctest.Wait()
				}
				for _, u := range uses {
					if u.over == "" && !time.Now().Before(u.grant.Expires()) {
						u.over = expired
					}
					if want := cmp.Or(u.over, "[]"); u.told.String() != want {
						t.Fatalf("step %d: %s, want %s", i, u.told, want)
					}
				}
			}
			for _, u := range uses {
				u.Stop()
			}
			time.Sleep(2 * checkEvery)
			synctest.Wait()
			if !g.due.IsZero() || len(g.uses) != 0 {
				t.Errorf("the clock is looked at for %d uses", len(g.uses))
			}
		})
	})
}

// TestConcurrently: uses come and go while grants are revoked.
func TestConcurrently(t *testing.T) {
	set := jws.NewRevocationSet()
	g := New(Options{Revoked: set})
	var all sync.WaitGroup
	for i := range 16 {
		id := protocol.GrantID(fmt.Sprintf("gr_%d", i))
		all.Go(func() {
			for range 100 {
				ctx, stop := g.Context(t.Context(), grant(id, time.Minute))
				if err := context.Cause(ctx); err != nil && err != ErrRevoked {
					t.Error(err)
				}
				stop()
			}
		})
		all.Go(func() { set.Add(id) })
	}
	all.Wait()
	if len(g.uses) != 0 {
		t.Errorf("%d uses are left", len(g.uses))
	}
}

// TestRenewable: a context ends with the newest grant of its use.
func TestRenewable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		ctx, use, stop := g.Renewable(t.Context(), grant("gr_1", time.Minute))
		defer stop()
		if err := use.Renew(grant("gr_2", time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it ended with the first grant")
		}
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if context.Cause(ctx) != ErrExpired {
			t.Error(context.Cause(ctx))
		}
		if over, none, stop := g.Renewable(t.Context(), grant("gr_3", -time.Minute)); none != nil || context.Cause(over) != ErrExpired {
			t.Error("an old grant has a use")
		} else {
			stop()
		}
	})
}
