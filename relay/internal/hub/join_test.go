package hub

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/feed"
)

const testEpoch = protocol.Epoch(7)

// at returns a position in the log that most tests have.
func at(offset uint64) *protocol.Position {
	return &protocol.Position{Epoch: testEpoch, Offset: offset}
}

// older is a log whose first 100,000 bytes the relay never had.
func older() protocol.TerminalOpened {
	return protocol.TerminalOpened{Epoch: testEpoch, Offset: 100_000, Head: 100_000, Lease: held(3, 2)}
}

func TestANewcomerGetsAKeyframe(t *testing.T) {
	w := newWorld(t, older())
	x := reads(w.join(bob, nil))
	a := w.attached()
	head := a.prints(100_000, 150_000)
	if want := a.answersKeyframe(head); !want.History {
		t.Error("asked for a keyframe without history")
	}
	head = a.prints(head, head+10_000)
	x.to(head)
	if m := x.attached; m.Mode != protocol.ModeKeyframe || m.Offset != 150_000 || m.KeyframeBytes != len(screen(150_000, true)) {
		t.Errorf("%+v", m)
	}

	// The next one gets the same, and goes on where it ends.
	y := reads(w.join(carol, nil))
	head = a.prints(head, head+10)
	y.to(head)
	if y.attached.Offset != 150_000 || y.keyed != 1 {
		t.Errorf("%+v", y.attached)
	}
	// Too much has come since for a third.
	head = a.prints(head, head+feed.ReuseBytes)
	y.to(head)
	z := w.join(alice, nil)
	a.answersKeyframe(head)
	reads(z).to(head)
	if n := testutil.ToFloat64(w.set.metrics.KeyframesWanted); n != 2 {
		t.Errorf("%v keyframes were asked for", n)
	}
	if n := testutil.ToFloat64(w.set.metrics.KeyframesSent); n != 3 {
		t.Errorf("%v keyframes were sent", n)
	}
}

// keeps reports whether f keeps a keyframe for whoever comes.
func keeps(f *feed.Feed) bool {
	var newcomer feed.Reader
	newcomer.Init(f, nil, feed.Start{}, false, false)
	return newcomer.Usable(feed.ScreenOnly) != nil
}

// However many join, the agent is asked once.
func TestJoinersShareAKeyframe(t *testing.T) {
	w := newWorld(t, older())
	first := w.join(alice, nil)
	a := w.attached()
	var waiting []*watcher
	for range 100 {
		waiting = append(waiting, w.join(bob, nil))
	}
	if keeps(first.v.hub.feed) {
		t.Fatal("a keyframe from nowhere")
	}
	a.answersKeyframe(100_000)
	head := a.prints(100_000, 100_500)
	for _, x := range append(waiting, first) {
		reads(x).to(head)
	}
	if n := testutil.ToFloat64(w.set.metrics.KeyframesWanted); n != 1 {
		t.Errorf("%v keyframes were asked for", n)
	}
}

func TestASmallLogComesWhole(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	first := w.join(alice, nil)
	a := w.attached()
	head := a.prints(0, feed.WholeBytes)
	r := reads(first)
	r.to(head)
	x := reads(w.join(bob, nil))
	x.to(head)
	if x.attached.Mode != protocol.ModeResume || x.attached.Offset != 0 {
		t.Errorf("%+v", x.attached)
	}
	head = a.prints(head, head+1)
	r.to(head)
	y := w.join(carol, nil)
	a.answersKeyframe(head)
	reads(y).to(head)
}

func TestSinceInTheRing(t *testing.T) {
	w := newWorld(t, older())
	first := w.joinAs(alice, Guest{Since: at(100_000)})
	a := w.attached()
	head := a.prints(100_000, 400_000)
	reads(first).to(head)
	for _, since := range []uint64{100_000, 100_001, 399_999, 400_000} {
		x := reads(w.join(bob, at(since)))
		for x.attached.Epoch == 0 {
			x.step()
		}
		x.to(head)
		if m := x.attached; m.Mode != protocol.ModeResume || m.Offset != since || m.KeyframeBytes != 0 {
			t.Errorf("since %d: %+v", since, m)
		}
	}
	if n := testutil.ToFloat64(w.set.metrics.KeyframesWanted); n != 0 {
		t.Errorf("%v keyframes were asked for", n)
	}
}

// A position that can't be served is a gap with a keyframe, and no error.
func TestSinceThatNeverWas(t *testing.T) {
	for name, g := range map[string]Guest{
		"another epoch": {Since: &protocol.Position{Epoch: 8, Offset: 100_000}},
		"the future":    {Since: at(100_001)},
		"garbage":       {Astray: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, older())
			x := reads(w.joinAs(bob, g))
			a := w.attached()
			a.answersKeyframe(100_000)
			x.to(a.prints(100_000, 100_100))
			if m := x.attached; m.Mode != protocol.ModeGap || m.Offset != 100_000 || m.KeyframeBytes == 0 {
				t.Errorf("%+v", m)
			}
		})
	}
}

// Without a keyframe a newcomer begins at a line, when it has waited enough. The
// agent is asked again for the next one.
func TestNoKeyframeComes(t *testing.T) { synctest.Test(t, testNoKeyframeComes) }

func testNoKeyframeComes(t *testing.T) {
	h, now := still(), time.Now()
	h.feed.Replace(protocol.Position{Epoch: testEpoch, Offset: 100}, 80, 24)
	h.link = deafLink(t)
	v := seat(h, 1, "usr_1", now.Add(time.Hour))
	h.tick(now.Add(keyframeWait / 2))
	if kinds := told(t, v); len(kinds) != 0 || len(h.wants.of) != 1 {
		t.Fatalf("told %q", kinds)
	}
	if wait := h.untilTick(now); wait > keyframeWait {
		t.Errorf("looks again in %v", wait)
	}
	h.tick(now.Add(keyframeWait + time.Second))
	if kinds := told(t, v); len(kinds) == 0 || kinds[1] != protocol.ServerAttached || len(h.wants.of) != 0 {
		t.Fatalf("told %q", kinds)
	}
	h.wants.asked[1] = time.Time{} // long ago
	seat(h, 2, "usr_2", now.Add(time.Hour))
	asked := 0
	for _, m := range sent(t, h.link) {
		if want, ok := m.(protocol.WantKeyframe); ok && want.History {
			asked++
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// A keyframe made before a change of size at its very offset is followed by it.
func TestAChangeOfSizeBehindAKeyframe(t *testing.T) {
	w := newWorld(t, older())
	x := reads(w.join(bob, nil))
	a := w.attached()
	a.answersKeyframe(100_000)
	a.say(protocol.Resized{Offset: 100_000, Cols: 132, Rows: 24})
	head := a.prints(100_000, 100_010)
	x.to(head)
	if x.attached.Cols != 80 || x.cols != 132 {
		t.Errorf("%d, then %d columns", x.attached.Cols, x.cols)
	}
	y := reads(w.join(carol, nil)) // gets the same one
	y.to(head)
	if y.attached.Cols != 80 || y.cols != 132 {
		t.Errorf("%d, then %d columns", y.attached.Cols, y.cols)
	}
}

// Keyframes that don't belong where they stand end the stream.
func TestMisplacedKeyframes(t *testing.T) {
	piece := func(offset uint64, left int) protocol.Keyframe {
		return protocol.Keyframe{Offset: offset, Left: left, Bytes: []byte("0123456789")}
	}
	for name, say := range map[string][]protocol.Message{
		"behind the head":    {piece(99_999, 0)},
		"ahead of the head":  {piece(100_001, 0)},
		"output in between":  {piece(100_000, 10), protocol.Data{Offset: 100_000, Bytes: []byte("x")}},
		"another begins":     {piece(100_000, 10), piece(100_000, 10)},
		"another sort":       {piece(100_000, 10), protocol.Keyframe{Offset: 100_000, History: true, Bytes: []byte("0123456789")}},
		"too much":           {piece(100_000, 5), piece(100_000, 0)},
		"another's offset":   {piece(100_000, 10), piece(100_001, 0)},
		"something else yet": {piece(100_000, 10), protocol.Recording{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, older())
			x := w.joinAs(bob, Guest{Since: at(100_000)})
			x.greeted()
			w.attached().say(say...)
			x.gets(protocol.ServerWaiting) // the stream is lost
		})
	}
}

// What waits for a keyframe that can't come any more doesn't wait on.
func TestWaitingForAKeyframeEnds(t *testing.T) {
	for name, end := range map[string]func(*world, *attach){
		"with the stream":  func(w *world, a *attach) { w.tunnels.Connect(nil); a.stream.Close() },
		"with the process": func(_ *world, a *attach) { a.say(protocol.Exited{Offset: 100_000}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, older())
			x := w.join(bob, nil)
			a := w.attached()
			hears[protocol.WantKeyframe](a)
			began := time.Now()
			end(w, a)
			if m := x.greeted(); m.Mode != protocol.ModeGap || m.KeyframeBytes != 0 {
				t.Errorf("%+v", m)
			}
			if took := time.Since(began); took > keyframeWait/2 {
				t.Errorf("waited for %v", took)
			}
		})
	}
}

// A new stream is asked again for what the lost one owed.
func TestOneWhoLeavesWhileItWaits(t *testing.T) {
	w := newWorld(t, older())
	x, y := w.join(bob, nil), w.join(carol, nil)
	a := w.attached()
	hears[protocol.WantKeyframe](a)
	x.leave()
	a.keyframe(100_000, true)
	reads(y).to(a.prints(100_000, 100_001))
}

// One whose position the ring is about to reach waits for that.
func TestAheadOfARelayThatCatchesUp(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.join(alice, nil)
	a := w.attached()
	head := a.prints(0, 1000)
	reads(x).to(head)
	w.opens(protocol.TerminalOpened{Epoch: testEpoch, Offset: 1000, Head: 5000, Lease: held(3, 2)}, nil)
	a.stream.Close()
	a = w.attached()
	y := w.join(bob, at(4000)) // another relay showed it so much
	a.prints(1000, 5000)
	r := reads(y)
	r.to(5000)
	if r.attached.Mode != protocol.ModeResume || r.attached.Offset != 4000 {
		t.Errorf("%+v", r.attached)
	}
}

func TestShareIsTold(t *testing.T) {
	opened := older()
	opened.Shared = "pty_2"
	w := newWorld(t, opened)
	x := w.joinAs(bob, Guest{Since: at(100_000)})
	a := w.attached()
	shared := func(m protocol.SharedMessage) protocol.Share {
		t.Helper()
		x.until(protocol.ServerShared).decode(t, &m)
		return m.With
	}
	if with := shared(protocol.SharedMessage{}); with != "pty_2" {
		t.Errorf("greeted with %q", with)
	}
	a.say(protocol.Shared{With: "pty_2"}, protocol.Shared{With: protocol.ShareSession}) // the first changes nothing
	if with := shared(protocol.SharedMessage{}); with != protocol.ShareSession {
		t.Errorf("told %q", with)
	}
	a.stream.Close()
	w.attached() // whose OPENED says pty_2 again
	if with := shared(protocol.SharedMessage{}); with != "pty_2" {
		t.Errorf("told %q after another OPENED", with)
	}
}

func TestRecordingIsTold(t *testing.T) {
	opened := older()
	opened.Recording = "rec_1"
	w := newWorld(t, opened)
	x := w.joinAs(bob, Guest{Since: at(100_000)})
	a := w.attached()
	for _, want := range []string{"rec_1", "", "rec_2"} {
		if want != "rec_1" {
			a.say(protocol.Recording{ID: want}, protocol.Recording{ID: want})
		}
		var m protocol.RecordingState
		x.until(protocol.ServerRecording).decode(t, &m)
		if m.ID != want {
			t.Errorf("%+v, want %q", m, want)
		}
	}
	a.say(protocol.Recording{})
	var m protocol.RecordingState
	if x.until(protocol.ServerRecording).decode(t, &m); m.ID != "" {
		t.Errorf("%+v", m)
	}
	y := w.joinAs(carol, Guest{Since: at(100_000)})
	y.greeted()
	a.data(100_000, "x")
	if it := y.next(); it.kind != output {
		t.Errorf("%s, though nothing is recorded", it)
	}
}

// record gives somebody the capability to view exactly.
func record(who func(*jws.Grant)) func(*jws.Grant) {
	return func(g *jws.Grant) {
		who(g)
		g.Caps = append(g.Caps, protocol.CapRecord)
	}
}

func TestWhoIsNamedHow(t *testing.T) {
	name := func(user protocol.UserID, client string, counts bool) (string, string) {
		return Guest{Grant: &jws.Grant{Subject: user}, Client: client, Counts: counts}.names()
	}
	pacer, client := name("usr_a", "page", true)
	if pacer != client || len(pacer) != 22 || strings.ContainsAny(pacer, "+/=") {
		t.Errorf("%q, %q", pacer, client)
	}
	if again, _ := name("usr_a", "page", true); again != pacer {
		t.Errorf("%q, then %q", pacer, again)
	}
	if other, _ := name("usr_b", "page", true); other == pacer {
		t.Error("two users' clients have one name")
	}
	// The relay counts a plain client's input, from 1 for each socket.
	plain, first := name("usr_a", "page", false)
	_, second := name("usr_a", "page", false)
	if plain != pacer || first == second {
		t.Errorf("%q, %q, %q", plain, first, second)
	}
	if a, b := name("usr_a", "", true); a != b || a == pacer {
		t.Errorf("%q, %q", a, b)
	}
}
