package cookies

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

func (r *rig) unpair(s *source) {
	r.t.Helper()
	_, err := r.run(alice, op.KindSyncUnpair, &op.SyncUnpair{Pairing: s.id})
	must(r.t, err)
}

func (r *rig) setPolicy(policy string, patterns ...string) {
	r.t.Helper()
	body := op.SyncPolicy{Policy: policy}
	for _, p := range patterns {
		body.Domains = append(body.Domains, op.SyncDomain{Pattern: p})
	}
	_, err := r.run(alice, op.KindSyncPolicy, &body)
	must(r.t, err)
}

// TestUpsert: what comes later is added, or replaces.
func TestUpsert(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	answer := s.push(cookie("a.test", "n", "1"), cookie("b.test", "n", "1"), cookie("a.test", "n", "2"))
	if answer.Written != 2 || answer.Duplicates != 1 || answer.Removed != 0 {
		t.Errorf("%+v", answer)
	}
	r.has("a.test n=2, b.test n=1")
	s.push(cookie("a.test", "n", "3"), cookie(".a.test", "n", "3"))
	r.has(".a.test n=3, a.test n=3, b.test n=1")
	s.push()
	r.has(".a.test n=3, a.test n=3, b.test n=1")
	r.reopen()
	r.has(".a.test n=3, a.test n=3, b.test n=1")
}

// TestRefused: what can't stand in Chromium, and what it doesn't take, is named with
// its reason, and spoils nothing.
func TestRefused(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	s.push(cookie("a.test", "odd", "0"))
	r.chromium.refuse = func(c seal.Cookie) string {
		if c.Name == "odd" {
			return "Chromium has not taken it"
		}
		return ""
	}
	long := cookie("a.test", "long", "")
	long.Value = canary + strings.Repeat("v", 4097)
	gone := cookie("a.test", "n", "late")
	gone.HasExpires, gone.Expires = 1, seal.ToMicros(time.Now().Add(-1))
	answer := s.push(cookie("a.test", "n", "1"), long, cookie("", "n", "1"), cookie("a.test", "odd", "1"), gone)
	if answer.Written != 1 || len(answer.Refused) != 4 {
		t.Errorf("%+v", answer)
	}
	for _, refusal := range answer.Refused {
		if refusal.Reason == "" {
			t.Errorf("%+v", refusal)
		}
	}
	// What it had of one that it doesn't take is nobody's: it goes.
	r.has("a.test n=1")
	if last := r.audit.list[len(r.audit.list)-1]; last.Written != 1 || last.Refused != 4 {
		t.Errorf("%+v", last)
	}
	r.noCanary(fmt.Sprintf("%+v", answer), fmt.Sprintf("%+v", r.audit.list))
}

// TestExpiry: what has expired since isn't given to a browser, nor kept for ever.
func TestExpiry(t *testing.T) { synctest.Test(t, testExpiry) }

func testExpiry(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	c := cookie("a.test", "n", "1")
	c.HasExpires, c.Persistent, c.Expires = 1, 1, seal.ToMicros(time.Now().Add(openFor))
	s.push(c)
	time.Sleep(2 * openFor)
	if got := r.Kept(sid); len(got) != 0 {
		t.Errorf("%v", got)
	}
	s.push(cookie("b.test", "n", "1"))
	if got := r.state(sid, false).Sites; len(got) != 1 || got[0].Site != "b.test" {
		t.Errorf("%v", got)
	}
}

// TestComplete: what a complete envelope hasn't goes, unless another pairing has it.
func TestComplete(t *testing.T) {
	r := newRig(t)
	a, b := r.laptop("a"), r.laptop("b")
	b.push(cookie("a.test", "n", "b"), cookie("b.test", "n", "b"))
	a.push(cookie("a.test", "n", "a"), cookie("c.test", "n", "a"), cookie("d.test", "n", "a"))
	r.has("a.test n=a, b.test n=b, c.test n=a, d.test n=a")
	e := a.envelope(cookie("d.test", "n", "2"))
	e.Complete = true
	if answer := a.pushed(e); answer.Removed != 2 || answer.Written != 1 {
		t.Errorf("%+v", answer)
	}
	r.has("a.test n=b, b.test n=b, d.test n=2")
	e = a.envelope()
	e.Complete = true
	a.pushed(e)
	r.has("a.test n=b, b.test n=b")
}

// TestUnpair: the address ends, and the cookies go that no other pairing has; those
// that one has are put back as it has them.
func TestUnpair(t *testing.T) {
	r := newRig(t)
	a, b := r.laptop("a"), r.laptop("b")
	a.push(cookie("a.test", "n", "a"), cookie("b.test", "n", "a"))
	b.push(cookie("b.test", "n", "b"), cookie("c.test", "n", "b"))
	a.push(cookie("x.test", "n", "a"))
	r.has("a.test n=a, b.test n=b, c.test n=b, x.test n=a")
	r.reopen() // and the order of pushes is known
	r.unpair(b)
	r.has("a.test n=a, b.test n=a, x.test n=a")
	b.refused(http.StatusNotFound, b.seal(b.envelope()))
	_, err := r.run(alice, op.KindSyncUnpair, &op.SyncUnpair{Pairing: b.id})
	r.gone(err, 5)
	r.reopen()
	b.refused(http.StatusNotFound, b.seal(b.envelope()))
	r.unpair(a)
	r.has("")
	if entries, err := os.ReadDir(r.dirOf(sid)); err != nil || len(entries) != 0 {
		t.Errorf("%v is left, %v", entries, err)
	}
	r.noCanary()
}

// TestUnpairFails: where Chromium doesn't do it that is said, and the pairing has ended
// all the same.
func TestUnpairFails(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	s.push(cookie("a.test", "n", "a"))
	r.chromium.fails = errors.New("canary: it hangs")
	if _, err := r.run(alice, op.KindSyncUnpair, &op.SyncUnpair{Pairing: s.id}); err == nil {
		t.Error("nobody hears of it")
	} else {
		r.noCanary(err.Error())
	}
	s.refused(http.StatusNotFound, s.seal(s.envelope()))
	if got := r.Kept(sid); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestWriteFails: a push that Chromium doesn't take is 500, and spent.
func TestWriteFails(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	r.chromium.fails = errors.New("it hangs")
	e := s.envelope(cookie("a.test", "n", "a"))
	if w := s.post(s.seal(e)); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "hangs") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.chromium.fails = nil
	s.refused(http.StatusConflict, s.seal(e))
	if last := r.audit.list[0]; last.Error != "InternalError" || last.Written != 0 {
		t.Errorf("%+v", last)
	}
	r.unpair(s) // what may have been set half is taken out
	r.has("")
}

// TestPolicyOperation: what a new policy keeps back goes at once, and stays out.
func TestPolicyOperation(t *testing.T) {
	r := newRig(t)
	a, b := r.laptop("a"), r.laptop("b")
	a.push(cookie("a.test", "n", "a"), cookie("www.b.test", "n", "a"), cookie(".b.test", "n", "a"))
	b.push(cookie("b.test", "n", "b"), cookie("c.test", "n", "b"))
	r.setPolicy("blocklist", "b.test", "%.B.test")
	r.has("a.test n=a, c.test n=b")
	answer := a.push(cookie("a.test", "n", "2"), cookie(".B.test", "n", "a"), cookie("b.test", "n", "2"), cookie("b.test", "m", "2"))
	if answer.Dropped != 3 || answer.DroppedHosts[".B.test"] != 1 || answer.DroppedHosts["b.test"] != 2 || answer.Written != 1 {
		t.Errorf("%+v", answer)
	}
	if !strings.Contains(r.log.String(), `\"b.test\"=2 \".B.test\"=1`) {
		t.Errorf("the log is %s", r.log)
	}
	r.setPolicy("allowlist", "c.test")
	r.has("c.test n=b")
	r.reopen()
	r.has("c.test n=b")
	r.setPolicy("allowlist")
	r.has("")
	r.setPolicy("blocklist")
	a.push(cookie("b.test", "n", "a"))
	r.has("b.test n=a")
}

// TestSessionEnded: nothing is left, and nothing comes any more.
func TestSessionEnded(t *testing.T) {
	r := newRig(t)
	s, h := r.laptop("a"), r.begin()
	s.push(cookie("a.test", "n", "a"))
	r.setPolicy("blocklist", "x.test")
	must(t, r.SessionEnded(sid))
	s.refused(http.StatusNotFound, s.seal(s.envelope()))
	_, err := h.right()
	r.gone(err, 5)
	if _, err := os.Stat(r.dirOf(sid)); !errors.Is(err, os.ErrNotExist) || len(r.Kept(sid)) != 0 {
		t.Errorf("something is left: %v", err)
	}
	must(t, r.SessionEnded(sid))
	must(t, r.SessionEnded("ses_never"))
}

// TestEndsMeanwhile: while one push writes and others wait their pairing or session
// ends: the others are told so, and nothing is left behind.
func TestEndsMeanwhile(t *testing.T) {
	for name, end := range map[string]func(*rig, *source){
		"pairing": func(r *rig, s *source) { r.unpair(s) },
		"session": func(r *rig, _ *source) { must(r.t, r.SessionEnded(sid)) },
	} {
		r := newRig(t)
		for round := range 20 {
			s := r.laptop("a")
			p := r.pairingsOf(sid)[0]
			until := func(so func() bool) {
				for met := false; !met; runtime.Gosched() {
					r.mu.Lock()
					met = so()
					r.mu.Unlock()
				}
			}
			var once sync.Once
			r.chromium.before = func() {
				once.Do(func() { until(func() bool { return r.addresses[p.Address] == nil }) })
			}
			const all = 6
			var wait sync.WaitGroup
			var written atomic.Int32
			for i := range all {
				sealed := s.seal(s.envelope(cookie("a.test", fmt.Sprint(i), "a")))
				wait.Go(func() {
					switch w := s.post(sealed); w.Code {
					case http.StatusOK:
						written.Add(1)
					case http.StatusNotFound:
					default:
						t.Error(w.Code, w.Body)
					}
				})
			}
			until(func() bool { return p.posts == all })
			end(r, s)
			wait.Wait()
			if name == "session" {
				r.chromium.has = map[seal.CookieID]seal.Cookie{} // which ends by itself
			}
			if written.Load() != 1 {
				t.Errorf("%s, round %d: %d were taken", name, round, written.Load())
			}
			r.has("")
			if entries, err := os.ReadDir(r.dirOf(sid)); err == nil && len(entries) > 0 {
				t.Fatalf("%s, round %d: %v is left", name, round, entries)
			}
		}
	}
}

// TestMany: a hundred thousand cookies, and as many hosts that are dropped: the answer
// has at most 64 KiB, and says how much it leaves out.
func TestMany(t *testing.T) {
	if underRace {
		t.Skip("without the race detector alone")
	}
	const some = 20_000
	r := newRig(t)
	s := r.laptop("a")
	r.setPolicy("blocklist", "%.blocked.test")
	e := s.envelope()
	for i := range some {
		host := fmt.Sprintf("h%d.ok.test", i)
		if i%2 == 0 {
			host = fmt.Sprintf("h%d.<blocked>.blocked.test", i)
		}
		e.Cookies = append(e.Cookies, cookie(host, "n", ""))
	}
	e.Cookies[1].HostKey = ""
	answer := s.pushed(e)
	if answer.Written != some/2-1 || answer.Dropped != some/2 || len(answer.Refused) != 1 || answer.More != answer.Dropped-len(answer.DroppedHosts) || answer.More == 0 {
		t.Errorf("%d written, %d dropped, %d refused, %d more", answer.Written, answer.Dropped, len(answer.Refused), answer.More)
	}
	e = s.envelope()
	for i := range seal.MaxCookies {
		c := cookie("", fmt.Sprint(i), "")
		e.Cookies = append(e.Cookies, c)
	}
	if answer := s.pushed(e); answer.More != seal.MaxCookies-len(answer.Refused) || len(answer.Refused) == 0 {
		t.Errorf("%d refused, %d more", len(answer.Refused), answer.More)
	}
	e.Sequence++
	e.Cookies = append(e.Cookies, e.Cookies[0])
	s.refused(http.StatusBadRequest, s.seal(e))
	if state := r.state(sid, false); len(state.Sites) != maxSites {
		t.Errorf("%d sites", len(state.Sites))
	}
	if lines := strings.Split(r.log.String(), "\n"); len(lines[len(lines)-2]) > 4<<10 {
		t.Errorf("a line of %d bytes", len(lines[len(lines)-2]))
	}
}

// TestKeptBound: what was pushed longest ago makes room.
func TestKeptBound(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	const most = 100
	r.pairingsOf(sid)[0].kept.most = most
	for round := range 3 {
		e := s.envelope()
		for i := range most / 2 {
			e.Cookies = append(e.Cookies, seal.Cookie{HostKey: "a.test", Name: fmt.Sprint(round, "-", i), Path: "/", SameSite: -1})
		}
		s.pushed(e)
	}
	kept := r.Kept(sid)
	if len(kept) != most || len(r.chromium.has) != most {
		t.Errorf("%d are kept, Chromium has %d", len(kept), len(r.chromium.has))
	}
	for _, c := range kept {
		if strings.HasPrefix(c.Name, "0") {
			t.Fatal("an old one is kept")
		}
	}
}

// TestLongRefusal: what is refused is named with its reason also if it is longer than an
// answer.
func TestLongRefusal(t *testing.T) {
	s := newRig(t).laptop("a")
	answer := s.pushed(s.envelope(cookie(strings.Repeat("ü", 1<<20), "n", "")))
	if len(answer.Refused) != 1 || answer.More != 0 || answer.Refused[0].Reason == "" || !strings.HasPrefix(answer.Refused[0].HostKey, "üü") {
		t.Errorf("%+v", answer)
	}
}

// TestMemory: all that is allocated on the way of an envelope is a few times its body.
// What is in use at once is less: 3.2 times, measured with 30 MiB.
func TestMemory(t *testing.T) {
	r := newRig(t)
	s := r.laptop("a")
	of := func() []byte {
		e := s.envelope()
		for i := range 3000 {
			c := cookie(fmt.Sprintf(".site-%d.test", i/10), fmt.Sprintf("name-%d", i), "")
			c.Value = strings.Repeat("v", 300)
			e.Cookies = append(e.Cookies, c)
		}
		return s.seal(e)
	}
	s.post(of())
	var body, least uint64
	for range 3 { // pools may have lost what they had
		sealed := of()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := s.post(sealed)
		runtime.ReadMemStats(&after)
		if w.Code != http.StatusOK {
			t.Fatal(w.Code)
		}
		took := after.TotalAlloc - before.TotalAlloc
		if body = uint64(len(sealed)); least == 0 || took < least {
			least = took
		}
	}
	if least > 7*body {
		t.Errorf("a body of %d KiB: %d KiB allocated", body>>10, least>>10)
	}
}

// heap returns the bytes on the heap, with what the collector hasn't found to be garbage.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestMemoryAtOnce: with many small cookies and with few large ones no more than four
// times an envelope's body is in memory at once, the body among it. The collector has
// little patience here, so that hardly anything counts that is of no use any more.
func TestMemoryAtOnce(t *testing.T) {
	if underRace {
		t.Skip("without the race detector alone")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	r := newRig(t, func(o *Options) { o.Chromium, o.Audit = nobody{}, nil })
	s := r.laptop("a")
	for _, c := range []struct{ cookies, bytes int }{{12_000, 10}, {6000, 300}, {1200, 4000}} {
		e := s.envelope()
		for i := range c.cookies {
			one := cookie(fmt.Sprintf(".site-%d.test", i/10), fmt.Sprintf("name-%d", i), "")
			one.Value = strings.Repeat("v", c.bytes)
			e.Cookies = append(e.Cookies, one)
		}
		sealed := s.seal(e)
		e = seal.Envelope{}
		runtime.GC()
		before, most := heap(), uint64(0)
		done, watched := make(chan struct{}), make(chan struct{})
		go func() { // the test waits for it
			defer close(watched)
			for {
				select {
				case <-done:
					return
				default:
					most = max(most, heap())
					runtime.Gosched()
				}
			}
		}()
		w := s.post(sealed)
		close(done)
		<-watched
		took := float64(most-before) / float64(len(sealed))
		t.Logf("%d cookies, a body of %d KiB: %.1f times that", c.cookies, len(sealed)>>10, took)
		if w.Code != http.StatusOK || most == 0 || took > 4 {
			t.Errorf("status %d", w.Code)
		}
	}
}

// Nobody is a Chromium that keeps nothing.
type nobody struct{}

func (nobody) SetCookies(context.Context, protocol.SessionID, []seal.Cookie) (map[int]string, error) {
	return nil, nil
}

func (nobody) RemoveCookies(context.Context, protocol.SessionID, []seal.CookieID) error { return nil }

// BenchmarkPush is what an envelope of 3,000 cookies takes beside Chromium, on a disk.
func BenchmarkPush(b *testing.B) {
	r := newRig(b, func(o *Options) { o.Dir = b.TempDir() })
	s := r.laptop("a")
	var patterns []string
	for i := range 1000 {
		patterns = append(patterns, fmt.Sprintf("%%ads%d.test", i))
	}
	r.setPolicy("blocklist", patterns...)
	for b.Loop() {
		b.StopTimer()
		e := s.envelope()
		for i := range 3000 {
			c := cookie(fmt.Sprintf(".site-%d.test", i/10), fmt.Sprintf("name-%d", i), "")
			c.Value = strings.Repeat("v", 300)
			e.Cookies = append(e.Cookies, c)
		}
		sealed := s.seal(e)
		b.StartTimer()
		if w := s.post(sealed); w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}
