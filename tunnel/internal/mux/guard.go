package mux

import (
	"encoding/binary"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/time/rate"
)

// The frame header of yamux (its spec.md): version 1 B, type 1 B, flags 2 B,
// stream 4 B, length 4 B.
const (
	headerBytes = 12

	typeData   = 0
	typeWindow = 1
	typePing   = 2
	typeGoAway = 3

	flagSYN = 1
	flagACK = 2
	flagFIN = 4
	flagRST = 8
)

// Limits on what a peer may send. yamux starts a goroutine for each ping and
// keeps every opened stream, so both are limited here. A stream that isn't
// closed within closeTimeout is reset; at most MaxStreams may wait for that.
// Small frames cost as much as large ones and carry little: beyond their rate
// the peer is read more slowly.
const (
	pingsPerSecond  = 10
	pingBurst       = 64
	opensPerSecond  = 10_000 // each command takes one, and there are thousands a second
	openBurst       = MaxStreams
	resetsPerSecond = MaxStreams / int(closeTimeout/time.Second)
	resetBurst      = MaxStreams
	smallPerSecond  = 100_000
	smallBurst      = 20_000
	smallBytes      = 32 // longest body of a small frame, in bytes
)

// shutTimeout bounds the wait of shut.
const shutTimeout = time.Second

// frameTimeout bounds the wait for the rest of a frame. PINGs notice a lost
// path earlier. It is a variable so that a test can lower it.
var frameTimeout = 10 * time.Second

// parity is the lowest bit of the stream ids that a side may open.
type parity uint32

const (
	clientParity parity = 1
	serverParity parity = 0
)

// A guard sits between a carrier stream and yamux. It checks the header of
// every incoming frame and ends the stream at one that only a hostile or broken
// peer would send. For outgoing frames it joins the header and the body, which
// yamux writes separately, so that a keystroke is one packet.
type guard struct {
	io.Closer

	// Owned by yamux's receiving goroutine.
	src     io.Reader
	peer    parity
	header  [headerBytes]byte
	have    int    // bytes of header
	payload uint32 // bytes of the current frame's body that remain
	pings   *rate.Limiter
	opens   *rate.Limiter
	resets  *rate.Limiter
	small   *rate.Limiter
	smalls  int    // small frames since the last pause
	fetches uint64 // reads in the middle of a frame, so far

	sending sync.Mutex // held while whole frames are written to dst
	dst     io.Writer
	out     []byte // a data frame's header until its body comes; owned by yamux's sending goroutine

	live     atomic.Pointer[yamux.Session] // for the number of its streams; nil until it runs
	flows    *flows
	patience time.Duration // static: how long the carrier may take nothing
	over     chan struct{} // closed by Close
	dry      chan struct{} // closed at the end of the carrier's data

	drying  atomic.Bool   // dry is being closed
	waits   atomic.Uint64 // number of the fetch that waits in the middle of a frame, 0 if none
	watched atomic.Bool   // watch checks waits regularly
	once    sync.Once     // of over

	// Guarded by mu.
	mu  sync.Mutex
	bad *Objection // why the guard ended the stream
}

func newGuard(conn io.ReadWriteCloser, peer parity) *guard {
	return &guard{
		Closer: conn, src: conn, dst: conn, peer: peer,
		pings:  rate.NewLimiter(pingsPerSecond, pingBurst),
		opens:  rate.NewLimiter(opensPerSecond, openBurst),
		resets: rate.NewLimiter(rate.Limit(resetsPerSecond), resetBurst),
		small:  rate.NewLimiter(smallPerSecond, smallBurst),
		flows:  newFlows(peer), patience: WriteTimeout, over: make(chan struct{}), dry: make(chan struct{}),
	}
}

// Close ends the carrier stream.
func (g *guard) Close() error {
	g.once.Do(func() { close(g.over) })
	return g.Closer.Close()
}

// Write implements io.Writer for yamux, which makes one call for a frame's
// header and one for its body.
func (g *guard) Write(p []byte) (int, error) {
	if len(g.out) == 0 && len(p) == headerBytes && p[1] == typeData && binary.BigEndian.Uint32(p[8:]) > 0 {
		g.out = append(g.out, p...)
		return len(p), nil
	}
	header, body := p, []byte(nil)
	if len(g.out) > 0 {
		header, body = g.out, p
		if len(body) <= minPiece {
			g.out = append(g.out, body...)
			header, body = g.out, nil
		}
		defer func() { g.out = g.out[:0] }()
	}
	if err := g.send(header, body); err != nil {
		return 0, err
	}
	return len(p), nil
}

// A GatherWriter is a carrier's stream that writes two pieces as one, since it copies
// what it writes anyway.
type GatherWriter interface {
	WriteGather(head, body []byte) error
}

// send writes whole frames. A long body isn't copied behind its header, unless it is
// copied anyway: that is in another packet then, at the worst.
func (g *guard) send(frames, body []byte) error {
	g.sending.Lock()
	defer g.sending.Unlock()
	if both, ok := g.dst.(GatherWriter); ok && len(body) > 0 {
		return both.WriteGather(frames, body)
	}
	_, err := g.dst.Write(frames)
	if err == nil && len(body) > 0 {
		_, err = g.dst.Write(body)
	}
	return err
}

// Read implements io.Reader for yamux. It returns no bad header.
func (g *guard) Read(p []byte) (int, error) {
	if bad := g.objection(); bad != nil {
		g.dried()
		return 0, bad
	}
	n, err := g.fetch(p)
	if err != nil {
		g.dried()
	}
	if bad := g.inspect(p[:n]); bad != nil {
		g.object(bad)
		g.dried()
		g.Close()
		return 0, bad
	}
	g.pace()
	return n, err
}

// dried notes that Read returns nothing more. While yamux ends the session,
// until it has notified the last stream, the streams' readers and writers would
// spin, and a thousand of them would take all cores from it. So they wait in
// [Session.ending].
func (g *guard) dried() {
	if g.drying.CompareAndSwap(false, true) {
		g.flows.wake()
		close(g.dry) // after all are awake, or the first would end the session
	}
}

// shut closes the carrier and lets yamux's receiving goroutine notice before
// anybody else ends the session.
func (g *guard) shut() {
	g.Close()
	timer := time.NewTimer(shutTimeout)
	defer timer.Stop()
	select {
	case <-g.dry:
	case <-timer.C:
	}
}

// fetch reads from the carrier. In the middle of a frame it is watched, as
// yamux then holds a lock of the frame's stream, for which the stream's reader
// waits regardless of its deadline.
func (g *guard) fetch(p []byte) (int, error) {
	if g.payload == 0 && g.have == 0 {
		return g.src.Read(p)
	}
	g.fetches++
	g.waits.Store(g.fetches)
	if g.watched.CompareAndSwap(false, true) {
		g.watch(g.fetches)
	}
	n, err := g.src.Read(p)
	g.waits.Store(0)
	return n, err
}

// watch ends the session if the same fetch still waits after frameTimeout. It
// repeats while there are fetches in the middle of frames.
func (g *guard) watch(fetch uint64) {
	time.AfterFunc(frameTimeout, func() {
		waits := g.waits.Load()
		switch {
		case waits == 0:
			g.watched.Store(false)
		case waits != fetch:
			g.watch(waits)
		default:
			g.object(object(ReasonTruncated, "leaves a frame unfinished"))
			g.Close()
		}
	})
}

// pace waits while the rate of small frames is too high.
func (g *guard) pace() {
	if g.smalls == 0 {
		return
	}
	n := min(g.smalls, smallBurst)
	g.smalls = 0
	wait := g.small.ReserveN(time.Now(), n).Delay()
	if wait == 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.over:
	}
}

// object stores the first objection.
func (g *guard) object(bad *Objection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bad == nil {
		g.bad = bad
	}
}

func (g *guard) objection() *Objection {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bad
}

// inspect parses the frames in p, split anywhere.
func (g *guard) inspect(p []byte) *Objection {
	for len(p) > 0 {
		if g.payload > 0 {
			skip := min(int(g.payload), len(p))
			g.payload -= uint32(skip)
			p = p[skip:]
			continue
		}
		n := copy(g.header[g.have:], p)
		g.have += n
		p = p[n:]
		if g.have < headerBytes {
			return nil
		}
		g.have = 0
		if bad := g.check(); bad != nil {
			return bad
		}
	}
	return nil
}

// check checks a complete header.
func (g *guard) check() *Objection {
	version, typ := g.header[0], g.header[1]
	fr := parseFrame(g.header[:])
	if version != 0 {
		return object(ReasonMalformed, "speaks version %d", version)
	}
	switch typ {
	case typeData, typeWindow:
		return g.checkStream(fr)
	case typePing:
		// We send none, so an answer is as unsolicited as a flood of pings.
		if !g.pings.Allow() {
			return object(ReasonPings, "floods with pings")
		}
	case typeGoAway:
		// A lane that opens no more streams is useless.
		return object(ReasonGoAway, "says the farewell of yamux, with code %d", fr.length)
	default:
		return object(ReasonMalformed, "sent frame type %d", typ)
	}
	return nil
}

// checkStream checks a frame of a stream.
func (g *guard) checkStream(fr frame) *Objection {
	if fr.data {
		if fr.length > Window {
			return object(ReasonFrameSize, "sent a frame of %d bytes, the window is %d", fr.length, Window)
		}
		g.payload = fr.length
	}
	if fr.length <= smallBytes {
		g.smalls++
	}
	if fr.flags&flagSYN != 0 {
		if bad := g.checkOpen(fr.stream); bad != nil {
			return bad
		}
	}
	if fr.flags&flagRST != 0 && !g.resets.Allow() {
		return object(ReasonResets, "floods with resets")
	}
	spill, bad := g.flows.in(fr)
	if spill != nil {
		spill.reset(ResetUnread)
	}
	return bad
}

// checkOpen checks a new stream. An id of our own parity would replace a stream
// that we opened.
func (g *guard) checkOpen(stream uint32) *Objection {
	session := g.live.Load()
	switch {
	case stream == 0 || stream&1 != uint32(g.peer):
		return object(ReasonStreamID, "opened stream %d, which is not its to open", stream)
	case !g.opens.Allow():
		return object(ReasonOpens, "floods with streams")
	case session != nil && session.NumStreams() >= MaxStreams:
		return object(ReasonStreams, "opened over %d streams", MaxStreams)
	}
	return nil
}

// A wire is the guard for yamux's output: it also tracks the streams of
// outgoing frames.
type wire struct {
	*guard
	body int // bytes of the current frame's body that remain; owned by yamux's sending goroutine
}

func (w *wire) Write(p []byte) (int, error) {
	switch {
	case w.body > 0:
		w.body -= len(p)
	case len(p) == headerBytes && p[1] <= typeWindow:
		if p[1] == typeData {
			w.body = int(binary.BigEndian.Uint32(p[8:]))
		}
		if w.flows.out(p); isIdle(p) {
			return len(p), nil
		}
	}
	n, err := w.guard.Write(p)
	if err != nil {
		w.shut()
	}
	return n, err
}

// isIdle reports whether a header says nothing.
func isIdle(header []byte) bool {
	return header[1] == typeWindow && binary.BigEndian.Uint16(header[2:]) == 0 && binary.BigEndian.Uint32(header[8:]) == 0
}

// tell tells the peer of grants until there are none. It doesn't hold up whoever
// reads, and ends with the carrier at the latest.
func (g *guard) tell() {
	var frames []byte
	for {
		all := g.flows.grants()
		if len(all) == 0 {
			return
		}
		frames = frames[:0]
		for _, one := range all {
			frames = append(frames, 0, typeWindow, 0, 0)
			frames = binary.BigEndian.AppendUint32(frames, one.stream)
			frames = binary.BigEndian.AppendUint32(frames, uint32(one.bytes))
		}
		stuck := time.AfterFunc(g.patience, func() { g.Close() })
		err := g.send(frames, nil)
		stuck.Stop()
		if err != nil {
			return // so does everything else that is sent
		}
	}
}

// grow has windows grow from now on.
func (g *guard) grow(path Path) {
	f := g.flows
	f.mu.Lock()
	defer f.mu.Unlock()
	f.growth = growth{most: MaxWindow, path: path}
	f.first = firstWindow
}
