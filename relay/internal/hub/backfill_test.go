package hub

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/tunnel"
)

// A relay that was restarted has an empty ring; six viewers come back with six
// positions, and the terminal goes on meanwhile.
func TestARestartedRelay(t *testing.T) {
	const oldest, begin = 50_000, 3_000_000
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Offset: begin, Head: begin + 250_000, Lease: held(3, 2)})
	w.serves(oldest, 30_000)
	go func() { // Open waits for the ring to catch up
		a := w.attached()
		a.prints(begin, begin+250_000)
		w.attaches <- a
	}()
	var viewers []*reading
	positions := []uint64{oldest, 1_000_000, 2_222_222, begin - 1, begin, begin + 123_456}
	for _, since := range positions {
		viewers = append(viewers, reads(w.join(bob, at(since))))
	}
	a := w.attached()
	var done sync.WaitGroup // waited for below
	for _, r := range viewers {
		done.Go(func() { r.to(begin + 500_000) })
	}
	a.prints(begin+250_000, begin+500_000)
	done.Wait()
	for i, r := range viewers {
		if m := r.attached; m.Mode != protocol.ModeResume || m.Offset != positions[i] || r.resyncs != 0 || r.keyed != 0 {
			t.Errorf("since %d: %+v, %d resyncs", positions[i], m, r.resyncs)
		}
		if r.cols != 80 { // the ring's own size, at the end
			t.Errorf("since %d: %d columns", positions[i], r.cols)
		}
	}
	if n := testutil.ToFloat64(w.set.metrics.BackfillBytes); n < begin-oldest {
		t.Errorf("%v bytes were read from the log", n)
	}
}

// Sizes on the way through the log come between the bytes they stand between.
func TestSizesInTheLog(t *testing.T) {
	w := newWorld(t, older())
	w.serves(0, 10_000)
	x := w.join(bob, at(25_000))
	r := reads(x)
	sizes := map[uint64]int{}
	for r.at < 100_000 {
		if it := r.step(); it.kind == protocol.ServerResized {
			sizes[r.at] = r.cols
		}
	}
	for offset := uint64(30_000); offset < 100_000; offset += 10_000 {
		if want := 80 + int(offset/10_000); sizes[offset] != want {
			t.Errorf("%d columns at %d, want %d", sizes[offset], offset, want)
		}
	}
	if sizes[25_000] != 82 { // attached guessed otherwise
		t.Errorf("%d columns at first", sizes[25_000])
	}
	a := w.attached()
	a.prints(100_000, 100_001)
	if r.to(100_001); r.cols != 80 {
		t.Errorf("%d columns in the ring", r.cols)
	}
}

// What the log doesn't have, or not all of, is a resync with a keyframe.
func TestTheLogCannotServe(t *testing.T) {
	for name, serve := range map[string]func(w *world, in *tunnel.Incoming, p protocol.ReadParams){
		"refused": func(_ *world, in *tunnel.Incoming, _ protocol.ReadParams) {
			in.Refuse(protocol.Fault(protocol.KindNotFound, nil))
		},
		"begins later":    func(w *world, in *tunnel.Incoming, p protocol.ReadParams) { w.sendLog(in, p, p.From+1, 0) },
		"ends before":     func(w *world, in *tunnel.Incoming, p protocol.ReadParams) { p.To = p.From; w.sendLog(in, p, p.From, 0) },
		"says other than": func(w *world, in *tunnel.Incoming, p protocol.ReadParams) { w.lies(in, p) },
	} {
		t.Run(name, func(t *testing.T) {
			lied := 0 // how often an answer was found out only later
			if name == "says other than" {
				lied = 1
			}
			w := newWorld(t, older())
			w.logs(func(in *tunnel.Incoming, p protocol.ReadParams) { serve(w, in, p) })
			x := reads(w.join(bob, at(20_000)))
			a := w.attached()
			if want := a.answersKeyframe(100_000); !want.History {
				t.Error("without history")
			}
			x.to(a.prints(100_000, 100_100))
			if x.resyncs != lied || x.keyed != 1 {
				t.Errorf("%d resyncs, %d keyframes", x.resyncs, x.keyed)
			}
			if gap := x.attached.Mode == protocol.ModeGap; gap != (lied == 0) {
				t.Errorf("attached with mode %s", x.attached.Mode)
			}
			if n := testutil.ToFloat64(w.set.metrics.Resyncs.WithLabelValues(feed.ResyncLog)); n != float64(lied) {
				t.Errorf("%v resyncs are counted", n)
			}
		})
	}
}

// lies serves output at an offset that isn't the next.
func (w *world) lies(in *tunnel.Incoming, p protocol.ReadParams) {
	stream, err := in.Accept(protocol.Opened{Result: []byte(`{"from":20000,"to":100000,"cols":80,"rows":24}`)})
	if err != nil {
		return
	}
	defer stream.Close()
	protocol.Write(stream, protocol.Data{Offset: p.From + 7, Bytes: []byte("x")})
}

// A READ that is cut off is taken up where it ended.
func TestTheLogIsCutOff(t *testing.T) {
	w := newWorld(t, older())
	var times atomic.Int64
	w.logs(func(in *tunnel.Incoming, p protocol.ReadParams) {
		if times.Add(1) > 3 {
			w.sendLog(in, p, p.From, 0)
			return
		}
		stream, err := in.Accept(protocol.Opened{Result: []byte(`{"from":` + strconv.FormatUint(p.From, 10) + `,"to":100000,"cols":80,"rows":24}`)})
		if err != nil {
			return
		}
		defer stream.Close()
		protocol.Write(stream, protocol.Data{Offset: p.From, Bytes: content(p.From, p.From+1000)})
	})
	x := reads(w.join(bob, at(20_000)))
	x.to(100_000)
	if x.resyncs != 0 || times.Load() != 4 {
		t.Errorf("%d resyncs, %d READs", x.resyncs, times.Load())
	}
}

// Only so many parts of the log are read at a time, and one who takes nothing
// doesn't keep the others from theirs.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel() // it waits for idleRead to pass
	w := newWorld(t, older())
	var now, most atomic.Int64
	w.logs(func(in *tunnel.Incoming, p protocol.ReadParams) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		w.sendLog(in, p, p.From, 0)
	})
	var stuck, viewers []*watcher
	for range maxReads {
		x := w.join(bob, at(0))
		x.greeted()
		x.sink.block(true)
		stuck = append(stuck, x)
	}
	for range 20 {
		viewers = append(viewers, w.join(bob, at(0)))
	}
	for _, x := range viewers {
		reads(x).to(100_000)
	}
	for _, x := range stuck {
		x.sink.block(false)
	}
	for _, x := range stuck {
		r := reads(x)
		r.to(100_000)
	}
	// The agent's end may be a moment late to end.
	if n := most.Load(); n > 2*maxReads {
		t.Errorf("%d READs at a time", n)
	}
}

// A log that begins anew while a viewer reads the old one.
func TestResetDuringABackfill(t *testing.T) {
	w := newWorld(t, older())
	begun, end := make(chan struct{}), make(chan struct{})
	w.logs(func(in *tunnel.Incoming, p protocol.ReadParams) {
		stream, err := in.Accept(protocol.Opened{Result: []byte(`{"from":20000,"to":100000,"cols":80,"rows":24}`)})
		if err != nil {
			return
		}
		defer stream.Close()
		if p.To == p.From+1 { // whether there is anything
			return
		}
		protocol.Write(stream, protocol.Data{Offset: p.From, Bytes: content(p.From, p.From+1000)})
		close(begun)
		<-end
	})
	defer close(end)
	x := reads(w.join(bob, at(20_000)))
	x.to(21_000)
	<-begun
	a := w.attached()
	a.say(protocol.Reset{Epoch: 8, Offset: 500, Cols: 80, Rows: 24})
	a.answersKeyframe(500)
	a.prints(500, 600)
	for x.resyncs == 0 {
		x.step()
	}
	x.to(600)
	if n := testutil.ToFloat64(w.set.metrics.Resyncs.WithLabelValues(feed.ResyncReset)); n != 1 {
		t.Errorf("%v resyncs are counted", n)
	}
}
