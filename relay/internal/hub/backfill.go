package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// maxReads bounds the parts of the log that a hub reads at a time; further
	// viewers wait.
	maxReads = 8
	// readBytes bounds a part of the log that is read at a time. It is less than
	// a stream's window, so that the agent is never left writing what nobody
	// reads.
	readBytes = 192 << 10
	// readTimeout bounds the wait for the next piece of the log.
	readTimeout = 10 * time.Second
	// idleRead is how long a part of the log stays open for a viewer that
	// takes nothing.
	idleRead = time.Second
	// maxReadFailures is how often in a row the log may not be had, for a
	// reason that may pass, before the viewer is moved ahead.
	maxReadFailures = 8
)

// A piece is output from the agent's log, framed for the viewer.
type piece struct {
	frames     []byte
	end        uint64 // offset behind it
	cols, rows int    // in force there
}

// A backfill is a viewer's way through the agent's log: a goroutine reads, the
// viewer's writer sends one piece after another. Guarded by feed.mu, but for
// taken.
type backfill struct {
	running bool // the goroutine is there
	waiting bool // piece is to be sent
	piece   piece
	cols    int // the size that the viewer knows of, 0 for none
	rows    int
	lag     uint64        // how far it was from the ring at first
	taken   chan struct{} // the piece was sent, or nobody wants any more
}

// begin starts a backfill for a viewer that knows the size.
func (b *backfill) begin(cols, rows int) {
	b.stop()
	b.cols, b.rows, b.lag = cols, rows, 0
}

// stop gives up what waits.
func (b *backfill) stop() {
	b.waiting, b.piece = false, piece{}
	b.signal()
}

func (b *backfill) signal() {
	select {
	case b.taken <- struct{}{}:
	default:
	}
}

// nextFilled is next for a viewer whose output comes from the agent's log.
func (f *feed) nextFilled(v *Viewer, dst net.Buffers, out outcome) (net.Buffers, outcome) {
	p, b := &v.place, &v.fill
	switch {
	case !b.waiting:
		out.fill = !b.running
	case v.counts && p.room() < protocol.MaxDataBytes:
		f.stand(v)
	default:
		dst = append(dst, b.piece.frames)
		p.offset, b.cols, b.rows = b.piece.end, b.piece.cols, b.piece.rows
		out.more = f.enter(v)
		b.stop()
	}
	return dst, out
}

// enter puts v, which has come so far in the agent's log, into the ring as soon
// as that holds what v needs next.
func (f *feed) enter(v *Viewer) bool {
	p := &v.place
	cursor, err := f.ring.CursorAt(p.offset)
	if err != nil {
		return false
	}
	p.state, p.cursor = following, cursor
	if cols, rows := f.ring.SizeAt(p.offset); cols != v.fill.cols || rows != v.fill.rows {
		p.lead = net.Buffers{sizeFrame(p.offset, cols, rows)} // it would be behind the cursor
	}
	v.held.Store(p.lead != nil)
	return true
}

func sizeFrame(offset uint64, cols, rows int) []byte {
	return replay.AppendTextFrame(nil, protocol.EncodeServerMessage(protocol.SizeChanged{Offset: offset, Cols: cols, Rows: rows}))
}

// claim makes the caller the goroutine that fills v, unless there is one or
// none is needed.
func (f *feed) claim(v *Viewer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.place.state != filling || v.fill.running {
		return false
	}
	v.fill.running = true
	return true
}

// A gap is what a viewer misses between its place and the ring.
type gap struct {
	run  uint64
	pos  protocol.Position
	to   uint64 // a good part of the way to the ring
	cols int    // the size that the viewer knows of, 0 for none
	rows int
}

// missing returns what v misses. When v needs no backfill any more, the caller
// has ceased to be the goroutine that fills it. Who falls behind further than
// it was is too slow for this, unless it gets every byte.
func (f *feed) missing(v *Viewer) (g gap, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, b := &v.place, &v.fill
	if p.run != f.run || p.state != filling {
		b.running = false
		return g, false
	}
	lag := f.ring.Oldest() - p.offset
	if b.lag == 0 {
		b.lag = lag
	}
	if !v.exact && lag > b.lag+protocol.RingBytes {
		b.running = false
		f.lose(v, resyncRing)
		return g, false
	}
	return gap{
		run: f.run, pos: protocol.Position{Epoch: f.ring.Epoch(), Offset: p.offset},
		to: min(f.ring.Head(), p.offset+readBytes), cols: b.cols, rows: b.rows,
	}, true
}

// offer has p sent to v, which gets it from the goroutine that fills it. It
// reports whether that is still wanted.
func (f *feed) offer(v *Viewer, run uint64, p piece) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run != run || v.place.state != filling {
		return false
	}
	select { // of an earlier piece
	case <-v.fill.taken:
	default:
	}
	v.fill.piece, v.fill.waiting = p, true
	return true
}

// giveUp takes v's output away, for it can't be had.
func (f *feed) giveUp(v *Viewer, run uint64, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == run && v.place.state == filling {
		f.lose(v, why)
	}
}

// errIdle says that the viewer takes nothing at the moment.
var errIdle = errors.New("hub: the viewer takes nothing")

// errNotServed says that the agent answered, but not with what the viewer
// misses.
var errNotServed = errors.New("hub: the log doesn't have it")

// backfill reads the agent's log for v until v is in the ring, or has to be
// moved ahead, or ctx ends.
func (v *Viewer) backfill(ctx context.Context) {
	f, reads := v.hub.feed, v.hub.reads
	failures, last := 0, uint64(0)
	for pause := time.Duration(0); wait(ctx, pause) == nil; {
		session, err := v.awaitLog(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case reads <- struct{}{}:
		case <-ctx.Done():
			return
		}
		g, ok := f.missing(v)
		if ok && err == nil {
			err = v.readLog(ctx, session, g)
		}
		<-reads
		switch {
		case !ok:
			v.nudge() // the writer sees what is to be done
			return
		case err == nil:
			pause, failures = 0, 0
		case errors.Is(err, errIdle):
			pause, failures = 0, 0
			select {
			case <-v.fill.taken:
			case <-ctx.Done():
			}
		case errors.Is(err, errNotServed), final(err), failures == maxReadFailures:
			v.hub.log.Info("log not served", "pty", v.hub.key.PTY, "offset", g.pos.Offset, "err", err)
			f.giveUp(v, g.run, resyncLog)
		case g.pos.Offset > last: // there was progress
			pause, failures, last = firstPause, 1, g.pos.Offset
		default:
			failures++
			pause = longer(pause)
		}
	}
}

// awaitLog returns the tunnel to the agent's log. When the terminal's process
// is over the agent may be, too, and is not waited for without end.
func (v *Viewer) awaitLog(ctx context.Context) (*tunnel.Session, error) {
	if v.hub.finished.Load() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, openTimeout)
		defer cancel()
	}
	session, err := v.hub.tunnels.Wait(ctx, v.hub.key.Sandbox)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errNotServed, err)
	}
	return session, nil
}

// readLog hands v pieces of the agent's log until the end of g, or until v
// needs no more of it.
func (v *Viewer) readLog(ctx context.Context, session *tunnel.Session, g gap) error {
	r, err := v.openLog(ctx, session, g)
	if err != nil {
		return err
	}
	defer r.stream.Close()
	defer context.AfterFunc(ctx, func() { r.stream.Close() })()
	idle := time.NewTimer(idleRead)
	defer idle.Stop()
	for {
		r.stream.SetReadDeadline(time.Now().Add(readTimeout))
		p, err := r.next()
		if err != nil || len(p.frames) == 0 {
			return err
		}
		v.hub.metrics.BackfillBytes.Add(float64(p.end - r.from))
		r.from = p.end
		if !v.hub.feed.offer(v, g.run, p) {
			return nil
		}
		v.nudge()
		idle.Reset(idleRead)
		select {
		case <-v.fill.taken:
		case <-idle.C:
			return errIdle
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A logReader reads a part of the agent's log, framed for viewers.
type logReader struct {
	stream     *tunnel.Stream
	frames     *protocol.FrameReader
	from, to   uint64 // what is still to come
	cols, rows int
	pending    []byte // text frames that wait for what follows them
}

// openLog asks the agent for g, under the hub's own grant.
func (v *Viewer) openLog(ctx context.Context, session *tunnel.Session, g gap) (*logReader, error) {
	h := v.hub
	params, err := json.Marshal(protocol.ReadParams{
		SessionID: h.key.Session, PTYID: h.key.PTY, Epoch: g.pos.Epoch, From: g.pos.Offset, To: g.to,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, answer, err := session.Open(ctx, protocol.LaneBulk,
		protocol.Open{Kind: protocol.StreamRead, Grant: h.bearer.Load().grant.Token, Params: params})
	if err != nil {
		return nil, err
	}
	var opened protocol.ReadOpened
	if err := json.Unmarshal(answer.Result, &opened); err != nil || opened.From != g.pos.Offset || opened.To <= opened.From {
		stream.Close()
		return nil, fmt.Errorf("%w: asked for %d to %d, got %d to %d", errNotServed, g.pos.Offset, g.to, opened.From, opened.To)
	}
	r := &logReader{
		stream: stream, frames: protocol.NewFrameReader(stream),
		from: opened.From, to: opened.To, cols: opened.Cols, rows: opened.Rows,
	}
	if opened.Cols != g.cols || opened.Rows != g.rows {
		r.pending = sizeFrame(opened.From, opened.Cols, opened.Rows)
	}
	return r, nil
}

// next returns the next piece, an empty one at the end.
func (r *logReader) next() (piece, error) {
	at := r.from
	for {
		frame, err := r.frames.Next()
		if errors.Is(err, io.EOF) && at == r.to {
			p := piece{r.pending, at, r.cols, r.rows}
			r.pending = nil
			return p, nil
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return piece{}, err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return piece{}, err
		}
		switch m := m.(type) {
		case protocol.Resized:
			if m.Offset != at {
				return piece{}, fmt.Errorf("%w: a size at %d, expected %d", errNotServed, m.Offset, at)
			}
			r.pending = append(r.pending, sizeFrame(m.Offset, m.Cols, m.Rows)...)
			r.cols, r.rows = m.Cols, m.Rows
		case protocol.Data:
			end := at + uint64(len(m.Bytes))
			if m.Offset != at || end > r.to {
				return piece{}, fmt.Errorf("%w: output at %d, expected %d", errNotServed, m.Offset, at)
			}
			p := piece{replay.AppendBinaryFrame(r.pending, m.Bytes), end, r.cols, r.rows}
			r.pending = nil
			return p, nil
		default:
			return piece{}, fmt.Errorf("%w: %s", errNotServed, frame.Type)
		}
	}
}
