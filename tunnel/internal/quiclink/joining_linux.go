package quiclink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// leastJoined is the least number of datagrams in a burst behind which another is
	// expected.
	leastJoined = 8
	// mostJoined bounds what is sent by one call, in bytes: it must be a datagram for
	// the kernel, and of no more segments than each kernel takes.
	mostJoined, mostSegments = 65_000, 64
)

// A joining joins bursts of one connection into larger ones. quic-go makes bursts of
// 20 KiB, each of which is a call here, and a wake-up and another call at the peer.
type joining struct {
	to sender // static

	// Guarded by mu.
	mu      sync.Mutex
	data    []byte // that waits; nil: nothing
	oob     []byte // of it
	addr    *net.UDPAddr
	segment int
	failed  error // of what was sent last, that nobody was told of
}

// A sender sends at once.
type sender interface {
	send(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error)
}

// joined keeps what waits: an idle connection has none.
var joined = sync.Pool{New: func() any { return new([mostJoined]byte) }}

// write sends b, or keeps it for a moment if it is a burst that is likely to be
// followed by another one.
func (j *joining) write(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	segment := sizeOf(oob)
	full := segment > 0 && len(b)%segment == 0
	if len(j.data) > 0 && !j.fits(b, oob, addr) {
		j.failed = j.flush()
	}
	// EIO says that bursts can't be sent on this path, which quic-go expects of a burst
	// only. It makes none then.
	if err := j.failed; err != nil && (segment > 0 || !errors.Is(err, unix.EIO)) {
		j.failed = nil
		return 0, 0, err
	}
	if len(j.data) == 0 {
		if !full || len(b) < leastJoined*segment || len(b) > mostJoined {
			return j.to.send(b, oob, addr)
		}
		j.data, j.segment, j.addr = joined.Get().(*[mostJoined]byte)[:0], segment, addr
		j.oob = append(j.oob[:0], oob...)
		go j.flushSoon() // ends with the next turn of what runs now
	}
	j.data = append(j.data, b...)
	if !full {
		err = j.flush() // nothing can be joined to what is shorter
	}
	return len(b), len(oob), err
}

// fits reports whether b may be joined to what waits. The caller holds mu.
func (j *joining) fits(b, oob []byte, addr *net.UDPAddr) bool {
	most := min(mostJoined, mostSegments*j.segment)
	return len(j.data)+len(b) <= most && bytes.Equal(oob, j.oob) && addr.Port == j.addr.Port && addr.IP.Equal(j.addr.IP)
}

// flushSoon sends what waits when everybody else who can has run.
func (j *joining) flushSoon() {
	runtime.Gosched()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.data) > 0 {
		j.failed = j.flush()
	}
}

// flush sends what waits. An error takes it along: QUIC sends again what is lost. The
// caller holds mu.
func (j *joining) flush() error {
	_, _, err := j.to.send(j.data, j.oob, j.addr)
	joined.Put((*[mostJoined]byte)(j.data[:mostJoined]))
	j.data = nil
	return err
}

// sizeOf returns how long each datagram of a burst is, 0 for what is none.
func sizeOf(oob []byte) int {
	for len(oob) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_SEGMENT && len(data) >= 2 {
			return int(binary.NativeEndian.Uint16(data))
		}
		oob = rest
	}
	return 0
}
