package mux

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

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
)

// Limits of what a peer may send. yamux answers each ping with a goroutine and
// keeps every stream that was opened, so both are rationed here.
const (
	pingsPerSecond = 10
	pingBurst      = 64
	opensPerSecond = 10_000 // a command takes one, and there are thousands a second
	openBurst      = MaxStreams
)

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

	// Owned by yamux's sending goroutine.
	dst io.Writer
	out []byte // a data frame's header that waits for its body

	live atomic.Pointer[yamux.Session] // to count its streams; nil until it runs

	// Guarded by mu.
	mu  sync.Mutex
	err error // why the guard ended the stream
}

func newGuard(conn io.ReadWriteCloser, peer parity) *guard {
	return &guard{
		Closer: conn, src: conn, dst: conn, peer: peer,
		pings: rate.NewLimiter(pingsPerSecond, pingBurst),
		opens: rate.NewLimiter(opensPerSecond, openBurst),
	}
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
	if err := g.objection(); err != nil {
		return 0, err
	}
	n, err := g.src.Read(p)
	if bad := g.inspect(p[:n]); bad != nil {
		g.mu.Lock()
		g.err = bad
		g.mu.Unlock()
		g.Close()
		return 0, bad
	}
	return n, err
}

func (g *guard) objection() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// inspect follows the frames through p, wherever it is cut.
func (g *guard) inspect(p []byte) error {
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
		if err := g.check(); err != nil {
			return err
		}
	}
	return nil
}

// check judges the header that is complete.
func (g *guard) check() error {
	version, typ := g.header[0], g.header[1]
	flags := binary.BigEndian.Uint16(g.header[2:])
	stream, length := binary.BigEndian.Uint32(g.header[4:]), binary.BigEndian.Uint32(g.header[8:])
	if version != 0 {
		return fmt.Errorf("mux: peer speaks version %d", version)
	}
	switch typ {
	case typeData, typeWindow:
		if typ == typeData {
			if length > Window {
				return fmt.Errorf("mux: peer sent a frame of %d bytes, the window is %d", length, Window)
			}
			g.payload = length
		}
		if flags&flagSYN != 0 {
			return g.checkOpen(stream)
		}
	case typePing:
		if flags&flagSYN != 0 && !g.pings.Allow() {
			return fmt.Errorf("mux: peer floods with pings")
		}
	case typeGoAway:
	default:
		return fmt.Errorf("mux: peer sent frame type %d", typ)
	}
	return nil
}

// checkOpen judges a new stream: an id of our own parity would take the place
// of a stream that we opened.
func (g *guard) checkOpen(stream uint32) error {
	session := g.live.Load()
	switch {
	case stream == 0 || stream&1 != uint32(g.peer):
		return fmt.Errorf("mux: peer opened stream %d, which is not its to open", stream)
	case !g.opens.Allow():
		return fmt.Errorf("mux: peer floods with streams")
	case session != nil && session.NumStreams() >= MaxStreams:
		return fmt.Errorf("mux: peer opened over %d streams", MaxStreams)
	}
	return nil
}
