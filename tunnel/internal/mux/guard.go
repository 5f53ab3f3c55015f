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

// Limits of what a peer may send. yamux answers each ping with a goroutine and
// keeps every stream that was opened, so both are rationed here. A stream is
// taken back when it wasn't closed for closeTimeout, which at most MaxStreams
// are at a time. Small frames cost as much as large ones and bring nothing:
// beyond their rate the peer is read no faster.
const (
	pingsPerSecond  = 10
	pingBurst       = 64
	opensPerSecond  = 10_000 // a command takes one, and there are thousands a second
	openBurst       = MaxStreams
	resetsPerSecond = MaxStreams / int(closeTimeout/time.Second)
	resetBurst      = MaxStreams
	smallPerSecond  = 100_000
	smallBurst      = 20_000
	smallBytes      = 32 // the longest body of a small frame
)

// shutTimeout bounds the wait of shut.
const shutTimeout = time.Second

// frameTimeout is how long the rest of a frame may take to begin to come. A
// path that is gone is noticed by PINGs before. A test has less patience.
var frameTimeout = 10 * time.Second

// parity is the lowest bit of the stream ids that a side may open.
type parity uint32

const (
	clientParity parity = 1
	serverParity parity = 0
)

// A guard stands between a carrier stream and yamux. It reads the header of
// every frame that comes in and ends the stream at the first one that only a
// hostile or broken peer would send. On the way out it joins the header and
// body that yamux writes separately, so that a keystroke is one packet.
type guard struct {
	io.Closer

	// Owned by yamux's receiving goroutine.
	src     io.Reader
	peer    parity
	header  [headerBytes]byte
	have    int    // bytes of header
	payload uint32 // bytes of the current frame's body that are still to come
	pings   *rate.Limiter
	opens   *rate.Limiter
	resets  *rate.Limiter
	small   *rate.Limiter
	smalls  int    // small frames since the last time it was asked
	fetches uint64 // in the middle of a frame, so far

	// Owned by yamux's sending goroutine.
	dst io.Writer
	out []byte // a data frame's header that waits for its body

	live  atomic.Pointer[yamux.Session] // to count its streams; nil until it runs
	flows *flows
	over  chan struct{} // closed by Close
	dry   chan struct{} // closed when the carrier yields nothing more

	drying  atomic.Bool   // dry is about to be closed
	waits   atomic.Uint64 // the number of the fetch in the middle of a frame, 0 when there is none
	watched atomic.Bool   // watch looks at waits from time to time
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
		flows:  newFlows(peer), over: make(chan struct{}), dry: make(chan struct{}),
	}
}

// Close ends the carrier stream.
func (g *guard) Close() error {
	g.once.Do(func() { close(g.over) })
	return g.Closer.Close()
}

// Write implements io.Writer for yamux, which writes a frame's header and body
// by one call each.
func (g *guard) Write(p []byte) (int, error) {
	if len(g.out) == 0 && len(p) == headerBytes && p[1] == typeData && binary.BigEndian.Uint32(p[8:]) > 0 {
		g.out = append(g.out, p...)
		return len(p), nil
	}
	if len(g.out) == 0 {
		return g.dst.Write(p)
	}
	g.out = append(g.out, p...)
	_, err := g.dst.Write(g.out)
	g.out = g.out[:0]
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read implements io.Reader for yamux. It never returns a header that it
// objects to.
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

// dried says that Read returns nothing more. From when yamux begins to end the
// session until it has told the last stream, each one's readers and writers would
// spin, and a thousand of them take all cores from it; so they are to wait in
// [Session.ending].
func (g *guard) dried() {
	if g.drying.CompareAndSwap(false, true) {
		g.flows.wake()
		close(g.dry) // not before all are awake, or the first would end the session
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

// fetch reads from the carrier. In the middle of a frame that is watched: yamux
// then holds a lock of the frame's stream, on which its reader waits, whatever
// its deadline is.
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
// goes on as long as there are fetches in the middle of frames.
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

// pace waits as long as the small frames that have come are too many.
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

// object notes the first objection.
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

// inspect follows the frames through p, wherever it is cut.
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

// check judges the header that is complete.
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
		// We send none, so an answer is as unasked for as a flood of questions.
		if !g.pings.Allow() {
			return object(ReasonPings, "floods with pings")
		}
	case typeGoAway:
		// A lane that opens no more streams is of no use.
		return object(ReasonGoAway, "says the farewell of yamux, with code %d", fr.length)
	default:
		return object(ReasonMalformed, "sent frame type %d", typ)
	}
	return nil
}

// checkStream judges a frame of a stream.
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

// checkOpen judges a new stream: an id of our own parity would take the place
// of a stream that we opened.
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

// A wire is the guard as yamux writes to it: the streams of what goes out are
// followed too.
type wire struct {
	*guard
	body int // bytes of the current frame's body that are still to come; owned by yamux's sending goroutine
}

func (w *wire) Write(p []byte) (int, error) {
	switch {
	case w.body > 0:
		w.body -= len(p)
	case len(p) == headerBytes && p[1] <= typeWindow:
		if p[1] == typeData {
			w.body = int(binary.BigEndian.Uint32(p[8:]))
		}
		w.flows.out(p)
	}
	n, err := w.guard.Write(p)
	if err != nil {
		w.shut()
	}
	return n, err
}
