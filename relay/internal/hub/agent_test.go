package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// printed is what the terminals of these tests say, over and over: longer than
// what any of them skips.
var printed = sync.OnceValue(func() []byte {
	out := make([]byte, 4<<20+15)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range out {
		out[i] = byte(random.Uint32())
	}
	return out
})

// content returns what the terminals of these tests say from one offset to
// another.
func content(from, to uint64) []byte {
	all := printed()
	out := make([]byte, 0, to-from)
	for from < to {
		at := from % uint64(len(all))
		n := min(to-from, uint64(len(all))-at)
		out = append(out, all[at:at+n]...)
		from += n
	}
	return out
}

// prints sends content from one offset to another.
func (a *attach) prints(from, to uint64) uint64 {
	a.t.Helper()
	for from < to {
		n := min(to-from, protocol.MaxDataBytes)
		a.say(protocol.Data{Offset: from, Bytes: content(from, from+n)})
		from += n
	}
	return to
}

// screen is what the keyframes of these tests say.
func screen(offset uint64, history bool) string {
	return fmt.Sprintf("<screen at %d, %v>%s", offset, history, strings.Repeat(".", 40_000))
}

// keyframe sends a keyframe, in pieces.
func (a *attach) keyframe(offset uint64, history bool) {
	a.t.Helper()
	var pieces []protocol.Message
	for rest := []byte(screen(offset, history)); len(rest) > 0; {
		n := min(len(rest), protocol.MaxKeyframePiece)
		pieces = append(pieces, protocol.Keyframe{Offset: offset, History: history, Left: len(rest) - n, Bytes: rest[:n]})
		rest = rest[n:]
	}
	a.say(pieces...)
}

// answersKeyframe waits for a request and answers it.
func (a *attach) answersKeyframe(offset uint64) protocol.WantKeyframe {
	a.t.Helper()
	want := hears[protocol.WantKeyframe](a)
	a.keyframe(offset, want.History)
	return want
}

// serves has the sandbox serve READ: content from oldest on, with a change of
// size every so many bytes if that is not 0.
func (w *world) serves(oldest uint64, resizes uint64) {
	w.logs(func(in *tunnel.Incoming, p protocol.ReadParams) { w.sendLog(in, p, max(p.From, oldest), resizes) })
}

func (w *world) logs(serve func(*tunnel.Incoming, protocol.ReadParams)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = serve
}

// serveLog answers READ.
func (w *world) serveLog(in *tunnel.Incoming) {
	var params protocol.ReadParams
	if err := json.Unmarshal(in.Open.Params, &params); err != nil {
		w.t.Errorf("params of OPEN: %v", err)
	}
	w.mu.Lock()
	serve := w.log
	w.mu.Unlock()
	if in.Lane != protocol.LaneBulk {
		w.t.Errorf("READ on lane %s", in.Lane)
	}
	if serve == nil {
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no log"))
		return
	}
	serve(in, params)
}

// sendLog sends content from an offset to p.To.
func (w *world) sendLog(in *tunnel.Incoming, p protocol.ReadParams, from, resizes uint64) {
	cols := func(at uint64) int {
		if resizes == 0 {
			return 80
		}
		return 80 + int(at/resizes%100)
	}
	to := max(from, p.To)
	result, err := json.Marshal(protocol.ReadOpened{From: from, To: to, Cols: cols(from), Rows: 24})
	if err != nil {
		w.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	for at := from; at < to; {
		n := min(to-at, protocol.MaxDataBytes)
		if resizes > 0 {
			n = min(n, resizes-at%resizes)
		}
		if protocol.Write(stream, protocol.Data{Offset: at, Bytes: content(at, at+n)}) != nil {
			return
		}
		at += n
		if resizes > 0 && at%resizes == 0 {
			if protocol.Write(stream, protocol.Resized{Offset: at, Cols: cols(at), Rows: 24}) != nil {
				return
			}
		}
	}
}

// A reading is what a viewer makes of its socket: where it is, and what it was
// told on the way.
type reading struct {
	t        *testing.T
	x        *watcher
	at       uint64
	frame    int // bytes of the keyframe that comes next
	resyncs  int
	keyed    int // keyframes
	cols     int
	attached protocol.Attached
	ack      bool // acknowledges everything at once
}

func reads(x *watcher) *reading { return &reading{t: x.t, x: x} }

// step takes one item, and checks it against content.
func (r *reading) step() item {
	r.t.Helper()
	it := r.x.next()
	switch it.kind {
	case protocol.ServerAttached:
		it.decode(r.t, &r.attached)
		r.at, r.frame, r.cols = r.attached.Offset, r.attached.KeyframeBytes, r.attached.Cols
	case protocol.ServerResync:
		var m protocol.Resync
		it.decode(r.t, &m)
		r.at, r.frame, r.cols = m.Offset, m.KeyframeBytes, m.Cols
		r.resyncs++
	case protocol.ServerResized:
		var m protocol.SizeChanged
		it.decode(r.t, &m)
		if m.Offset != r.at {
			r.t.Fatalf("a size at %d, the viewer is at %d", m.Offset, r.at)
		}
		r.cols = m.Cols
	case output:
		r.take(it.bytes)
	}
	return it
}

func (r *reading) take(b []byte) {
	r.t.Helper()
	if r.frame > 0 {
		if len(b) != r.frame || (string(b) != screen(r.at, true) && string(b) != screen(r.at, false)) {
			r.t.Fatalf("at %d: %d bytes of keyframe, announced %d: %.40s", r.at, len(b), r.frame, b)
		}
		r.frame = 0
		r.keyed++
	} else {
		if want := content(r.at, r.at+uint64(len(b))); !bytes.Equal(b, want) {
			r.t.Fatalf("other bytes at %d, seed of content is the offset", r.at)
		}
		r.at += uint64(len(b))
	}
	if r.ack {
		r.x.v.Ack(r.at)
	}
}

// to reads until the viewer has reached offset.
func (r *reading) to(offset uint64) {
	r.t.Helper()
	for r.at < offset || r.frame > 0 {
		if it := r.step(); it.kind == closed {
			r.t.Fatalf("%s at %d, before %d", it, r.at, offset)
		}
	}
	if r.at != offset {
		r.t.Fatalf("the viewer is at %d, want %d", r.at, offset)
	}
}
