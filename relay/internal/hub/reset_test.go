package hub

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
)

// mark is what every line of one epoch's output says.
func mark(epoch int) string { return fmt.Sprintf("epoch %d\r\n", epoch) }

// lines sends output of an epoch.
func (a *attach) lines(epoch int, from uint64, n int) uint64 {
	a.t.Helper()
	for range n {
		from = a.data(from, string(bytes.Repeat([]byte(mark(epoch)), 200)))
	}
	return from
}

// A terminal whose epochs end again and again while much is printed and many
// watch, some of them slowly: after its resync nobody gets a byte of an epoch
// that has ended, nor a keyframe of one.
func TestResetUnderLoad(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 100, Lease: held(3, 2)})
	var all, blocked []*watcher
	for i := range 12 {
		g := Guest{Since: &protocol.Position{Epoch: 100}}
		who := bob
		if i%4 == 0 {
			who, g.Counts, g.Client = alice, true, fmt.Sprint("page", i) // with control
		}
		x := w.joinAs(who, g)
		x.greeted()
		all = append(all, x)
		if i%3 == 0 {
			x.sink.block(true)
			blocked = append(blocked, x)
		}
	}
	a := w.attached()
	const last = 6
	done := make(chan struct{})
	go func() { // the sandbox; waited for below
		defer close(done)
		at := a.lines(0, 0, 20)
		for epoch := 1; epoch <= last; epoch++ {
			a.say(protocol.Reset{Epoch: protocol.Epoch(100 + epoch), Offset: at, Cols: 80, Rows: 24})
			at = a.lines(epoch, at, 20)
		}
		a.say(protocol.Resized{Offset: at, Cols: 90, Rows: 20})
		for { // whoever wants a keyframe gets one of the last epoch
			m, ok := <-a.heard
			if !ok {
				return
			}
			if m, ok := m.(protocol.WantKeyframe); ok {
				a.say(protocol.Keyframe{Offset: at, History: m.History, Bytes: []byte(mark(last))})
			}
		}
	}()
	for _, x := range blocked {
		x.sink.block(false)
	}
	var reading sync.WaitGroup
	for _, x := range all {
		reading.Go(func() { x.followsEpochs(100 + last) })
	}
	reading.Wait()
	late := w.join(carol, &protocol.Position{Epoch: 103, Offset: 5})
	if m := late.greeted(); m.Epoch != 100+last || m.Mode != protocol.ModeGap {
		t.Errorf("with a position of an epoch that has ended: %+v", m)
	}
	if n := testutil.ToFloat64(w.set.metrics.Resyncs.WithLabelValues(feed.ResyncReset)); n < float64(len(all)) {
		t.Errorf("%v resyncs", n)
	}
	a.stream.Close()
	w.opens(protocol.TerminalOpened{}, protocol.Errorf(protocol.KindNotFound, "no such terminal"))
	<-done
}

// followsEpochs reads until the size that is said last, and checks that each
// byte is of the epoch that the socket was told of.
func (x *watcher) followsEpochs(last protocol.Epoch) {
	epoch, frame := protocol.Epoch(100), 0
	var line []byte // since the last position that was told
	for {
		it := x.next()
		switch it.kind {
		case protocol.ServerResync:
			var m protocol.Resync
			it.decode(x.t, &m)
			if m.Epoch < epoch {
				x.t.Errorf("from epoch %d to %d", epoch, m.Epoch)
			}
			epoch, frame, line = m.Epoch, m.KeyframeBytes, nil
			if m.Cols == 90 && epoch == last {
				return // it begins behind the end
			}
		case output:
			if frame > 0 {
				if string(it.bytes) != mark(int(epoch-100)) {
					x.t.Errorf("a keyframe of another epoch than %d: %.20q", epoch, it.bytes)
				}
				frame = 0
				continue
			}
			line = append(line, it.bytes...)
			for {
				text, rest, whole := bytes.Cut(line, []byte("\n"))
				if !whole {
					break
				}
				if got := string(text) + "\n"; got != mark(int(epoch-100)) && !bytes.HasSuffix([]byte(mark(int(epoch-100))), []byte(got)) {
					x.t.Errorf("%q in epoch %d", got, epoch)
					return
				}
				line = rest
			}
			if x.v.counts {
				x.v.Ack(x.sent())
			}
		case protocol.ServerResized:
			if epoch == last {
				return
			}
		case closed:
			x.t.Errorf("%s", it)
			return
		}
	}
}

// sent returns where the relay believes the viewer to be at most.
func (x *watcher) sent() uint64 {
	return x.v.reader.Standing().Sent
}

// Pace-setters stay what they are when an epoch ends, and say where they are in
// the new one.
func TestPaceAcrossAReset(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(alice, Guest{Counts: true, Since: at(0)})
	x.greeted()
	a := w.attached()
	paces(a, protocol.Pace{ID: x.v.pacer})
	r := reads(x)
	head := a.prints(0, 200_000)
	r.to(head)
	x.v.Ack(head)
	paces(a, protocol.Pace{ID: x.v.pacer, Offset: head})
	const anew = 1_000_000
	a.say(protocol.Reset{Epoch: testEpoch + 1, Offset: anew, Cols: 80, Rows: 24})
	a.answersKeyframe(anew)
	for r.resyncs == 0 {
		r.step()
	}
	r.to(anew)
	head = a.prints(anew, anew+protocol.PaceBytes+1000)
	x.v.Ack(anew)
	r.to(head)
	x.v.Ack(head)
	for m := hears[protocol.Pace](a); m.Offset != head; m = hears[protocol.Pace](a) {
		if m.Gone || m.Offset < anew {
			t.Fatalf("%+v", m)
		}
	}
	if n := testutil.ToFloat64(w.set.metrics.PaceSetters); n != 1 {
		t.Errorf("%v pace-setters", n)
	}
}
