package terminal

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/lifespan"
)

// makes creates a terminal that ends as on says, and returns it with its fake.
func (h *fakeHost) makes(t *testing.T, id protocol.PTYID, on op.OnDetach) *rig {
	t.Helper()
	_, err := h.Create(t.Context(), session, id, op.PTYCreate{CreatorID: alice, OnDetach: on})
	must(t, err)
	r := h.launched[len(h.launched)-1]
	if r.Terminal, err = h.Get(session, id); err != nil {
		t.Fatal(err)
	}
	return r
}

func (v *viewer) audience(n int) { v.Audience(protocol.Audience{Sockets: n}) }

// since returns the signals that the program has got since the last call.
func (p *fakeProcess) since() []syscall.Signal {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.got
	p.got = nil
	return got
}

// left returns how much runs that the program has started.
func (p *fakeProcess) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leftover
}

// lives lets d pass, and checks that the program got nothing.
func (r *rig) lives(t *testing.T, d time.Duration, why string) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if got := r.proc.since(); len(got) > 0 || r.hasEnded() {
		t.Fatalf("%s: it got %v, ended %t", why, got, r.hasEnded())
	}
}

// ends lets d pass, and checks that the program got first before, and only then.
func (r *rig) ends(t *testing.T, d time.Duration, first ...syscall.Signal) {
	t.Helper()
	if d > 0 {
		r.lives(t, d-time.Nanosecond, "a moment before")
		time.Sleep(time.Nanosecond)
	}
	synctest.Wait()
	if got := r.proc.since(); !slices.Equal(got[:min(len(got), len(first))], first) {
		t.Fatalf("it got %v, want %v first", got, first)
	}
}

// TestDetached: when a terminal ends for want of viewers, and how that begins.
func TestDetached(t *testing.T) {
	const grace = protocol.ControlGrace
	for name, tt := range map[string]struct {
		on op.OnDetach
		do func(t *testing.T, r *rig)
	}{
		"its last socket closes": {op.DetachClose, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(2)
			r.lives(t, time.Hour, "two watch")
			v.audience(1)
			r.lives(t, time.Hour, "one watches")
			v.audience(0)
			r.ends(t, 0, syscall.SIGINT, syscall.SIGCONT)
		}},
		"two relays": {op.DetachClose, func(t *testing.T, r *rig) {
			a, b := r.attach(t, nil), r.attach(t, nil)
			a.audience(1)
			b.audience(1)
			a.audience(0)
			a.Close()
			r.lives(t, time.Hour, "one watches at the other relay")
			b.audience(0)
			r.ends(t, 0, syscall.SIGINT, syscall.SIGCONT)
		}},
		"a relay is killed": {op.DetachClose, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(1)
			v.Lose()
			r.ends(t, grace, syscall.SIGINT, syscall.SIGCONT)
		}},
		"a relay is killed and its viewer comes back": {op.DetachClose, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(1)
			v.Lose()
			r.lives(t, grace-time.Millisecond, "grace")
			again := r.attach(t, nil)
			again.audience(1)
			r.lives(t, time.Hour, "back in time")
			again.audience(0)
			r.ends(t, 0, syscall.SIGINT, syscall.SIGCONT)
		}},
		"a relay goes away with its viewers": {op.DetachClose, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(1)
			v.Close()
			r.ends(t, grace, syscall.SIGINT, syscall.SIGCONT)
		}},
		"a relay that says nothing": {op.DetachClose, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			r.lives(t, 24*time.Hour, "its stream is open")
			v.Close()
			r.ends(t, grace, syscall.SIGINT, syscall.SIGCONT)
		}},
		"nobody ever came": {op.DetachClose, func(t *testing.T, r *rig) {
			r.ends(t, lifespan.UnseenFor, syscall.SIGINT, syscall.SIGCONT)
		}},
		"after a while": {"30m", func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(1)
			r.lives(t, time.Hour, "one watches")
			v.audience(0)
			r.ends(t, 30*time.Minute, syscall.SIGHUP)
		}},
		"nobody came for a while": {"30m", func(t *testing.T, r *rig) {
			r.ends(t, 30*time.Minute, syscall.SIGHUP)
		}},
		"back in time": {"30m", func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(1)
			v.audience(0)
			v.Close()
			r.lives(t, 30*time.Minute-time.Millisecond, "in time")
			again := r.attach(t, nil)
			again.audience(1)
			again.audience(0) // between two looks
			r.ends(t, 30*time.Minute, syscall.SIGHUP)
		}},
		"kept": {op.DetachKeep, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			v.audience(1)
			v.audience(0)
			v.Close()
			r.lives(t, 100*time.Hour, "nothing was asked for")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			hostBubble(t, func(t *testing.T, h *fakeHost) {
				tt.do(t, h.makes(t, "pty_1", tt.on))
				if n := h.Counts().Deserted; (n == 1) != (tt.on != op.DetachKeep) {
					t.Errorf("%d terminals were deserted", n)
				}
			})
		})
	}
}

// TestDetachedDies: what heeds nothing is killed 3 s after the end has begun, and so
// is what a program that heeds it leaves behind, however late that one ends.
func TestDetachedDies(t *testing.T) {
	for name, heeds := range map[string]bool{"nothing heeds": false, "the program does, what it started doesn't": true} {
		t.Run(name, func(t *testing.T) {
			hostBubble(t, func(t *testing.T, h *fakeHost) {
				r := h.makes(t, "pty_1", op.DetachClose)
				r.proc.stubborn, r.proc.leftover = true, 2
				v := r.attach(t, nil)
				v.audience(1)
				start := time.Now()
				v.audience(0)
				r.ends(t, 0, syscall.SIGINT, syscall.SIGCONT)
				time.Sleep(lifespan.KillAfter - 100*time.Millisecond)
				if heeds {
					close(r.dev.output)
					r.proc.exit(130)
				}
				synctest.Wait()
				if r.proc.left() != 2 {
					t.Fatal("it was killed early")
				}
				<-r.life.gone
				if took := time.Since(start); took > lifespan.KillAfter+drainFor || r.proc.left() != 0 {
					t.Errorf("took %v, %d left", took, r.proc.left())
				}
				if got := r.proc.since(); heeds && slices.Contains(got[:1], syscall.SIGKILL) || !slices.Contains(got, syscall.SIGKILL) {
					t.Errorf("it got %v", got)
				}
			})
		})
	}
}

// TestBackTooLate: who comes back while a terminal ends sees its end.
func TestBackTooLate(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		r := h.makes(t, "pty_1", op.DetachClose)
		r.proc.stubborn = true
		v := r.attach(t, nil)
		v.audience(0)
		synctest.Wait()
		v.audience(1)
		close(r.dev.output)
		if m := want[protocol.Exited](v); m.Signal != "SIGKILL" {
			t.Errorf("%+v", m)
		}
	})
}

// TestListedAsMade: the list says how a terminal begins and ends, where that isn't
// how all do.
func TestListedAsMade(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		for id, p := range map[protocol.PTYID]op.PTYCreate{
			"pty_1": {OnDetach: op.DetachKeep, Spawn: op.SpawnEager}, "pty_2": {OnDetach: "30m", Spawn: op.SpawnLazy}, "pty_3": {},
		} {
			info, err := h.Create(t.Context(), session, id, p)
			must(t, err)
			lazy := id == "pty_2"
			if (info.Spawn == "lazy") != lazy || (info.OnDetach == "30m") != lazy || info.Waiting != lazy || !lazy && info.Spawn+info.OnDetach != "" {
				t.Errorf("%+v", info)
			}
		}
	})
}

// TestEndedUnseen: a late viewer gets the output and the end of a terminal that has
// ended behind their back, for as long as it would have gone on.
func TestEndedUnseen(t *testing.T) {
	for on, kept := range map[op.OnDetach]time.Duration{"30m": 30 * time.Minute, "24h": keepUnseen, "20m": 20 * time.Minute, "1s": keepEnded, "close": keepEnded, "": keepEnded} {
		hostBubble(t, func(t *testing.T, h *fakeHost) {
			r := h.makes(t, "pty_1", on)
			v := r.attach(t, nil)
			v.audience(1)
			v.audience(0)
			v.Close()
			r.print("the last words")
			h.end(0)
			time.Sleep(kept)
			term, err := h.Get(session, "pty_1")
			if err != nil {
				t.Fatalf("%s: %v", on, err)
			}
			late := attach(t, term, nil)
			late.wantData(0, "the last words")
			want[protocol.Exited](late)
			time.Sleep(time.Second)
			if list := h.List(session); len(list) != 0 {
				t.Errorf("%s: %+v is listed", on, list)
			}
		})
	}
}

// TestEndedUnseenAreBounded: by their number, apart from others, and by their bytes
// together.
func TestEndedUnseenAreBounded(t *testing.T) {
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		for i := range maxUnseen + 2 {
			h.makes(t, protocol.PTYID(fmt.Sprintf("pty_%02d", i)), "30m")
			h.end(i)
			time.Sleep(time.Second)
		}
		h.makes(t, "pty_plain", "")
		h.end(maxUnseen + 2)
		list := h.List(session)
		if len(list) != maxUnseen+1 || list[0].ID != "pty_02" || list[maxUnseen].ID != "pty_plain" {
			t.Errorf("%d listed, from %s", len(list), list[0].ID)
		}
	})
	hostBubble(t, func(t *testing.T, h *fakeHost) {
		const full = maxEndedBytes / protocol.LogWindowBytes
		flood := make([]byte, readBytes)
		for i := range flood {
			flood[i] = 'x'
		}
		for i := range full + 2 {
			r := h.makes(t, protocol.PTYID(fmt.Sprintf("pty_%02d", i)), "30m")
			for range protocol.LogWindowBytes/readBytes + 1 {
				r.dev.output <- flood
			}
			h.end(i)
			time.Sleep(time.Second)
		}
		if list := h.List(session); len(list) != full || list[0].ID != "pty_02" {
			t.Errorf("%d listed, from %s", len(list), list[0].ID)
		}
	})
}
