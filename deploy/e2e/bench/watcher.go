package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e"
	"github.com/fairlead/fairlead/protocol"
)

// A stamped chunk is chunkBytes long and begins with stampMark and the time, in
// microseconds since 1970, at which it was due: a late sender can't hide.
const (
	stampMark   = '@'
	stampDigits = 16
)

// stampedChunk returns a chunk that is due at a time.
func stampedChunk(due time.Time) []byte {
	b := fmt.Appendf(make([]byte, 0, chunkBytes), "%c%0*d", stampMark, stampDigits, due.UnixMicro())
	for len(b) < chunkBytes-1 {
		b = append(b, 'x')
	}
	return append(b, '\n')
}

// stampingGenerator is the terminal's program: for each "n rate" that it reads
// it writes n stamped chunks, rate per second.
const stampingGenerator = `stty raw -echo; exec perl -e '$| = 1; print "ready"; use Time::HiRes qw(time sleep);
while (<STDIN>) { my ($n, $rate) = split; my $next = time; for (1..$n) { $next += 1/$rate; my $wait = $next - time; sleep($wait) if $wait > 0;
syswrite(STDOUT, chr(64) . sprintf("%016d", $next * 1e6) . ("x" x 1006) . "\n"); } }'`

// A watcher is a viewer's socket that is read as cheaply as can be, so that a
// thousand of them don't take the machine from what is measured.
type watcher struct {
	conn net.Conn

	// Owned by read.
	in     *bufio.Reader
	digits []byte // of a stamp that is being read; nil between two

	// Guarded by mu.
	mu      sync.Mutex
	since   time.Time // stamps before it belong to an earlier block
	count   int       // chunks of this block
	delays  delays
	resyncs int
	ready   bool // the generator has started
	err     error
	changed *sync.Cond
}

// watchRelay attaches a watcher to a terminal.
func watchRelay(ctx context.Context, stack *e2e.Stack, user e2e.User, grant string, id protocol.PTYID) (*watcher, error) {
	ticket, err := user.Ticket(ctx, grant, stack.Ready.SessionID, id)
	if err != nil {
		return nil, err
	}
	return watch(ctx, ticket.URL, http.Header{
		"Origin": {user.Base}, "Sec-Websocket-Protocol": {protocol.SubprotocolTicket + ticket.Ticket},
	})
}

// watch opens a WebSocket and reads it from now on.
func watch(ctx context.Context, rawURL string, header http.Header) (*watcher, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", "ZmFpcmxlYWQgYmVuY2htYQ==")
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	w := &watcher{conn: conn, in: bufio.NewReaderSize(conn, 32<<10)}
	w.changed = sync.NewCond(&w.mu)
	resp, err := http.ReadResponse(w.in, req)
	if err != nil {
		return nil, err
	}
	resp.Body.Close() // there is none
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, fmt.Errorf("%s: status %d", rawURL, resp.StatusCode)
	}
	go func() { // ends with the socket, which close closes
		err := w.read()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
		w.changed.Broadcast()
	}()
	return w, nil
}

// read takes frames until the socket ends.
func (w *watcher) read() error {
	for {
		var head [2]byte
		if _, err := io.ReadFull(w.in, head[:]); err != nil {
			return err
		}
		n := uint64(head[1] & 0x7f)
		if extended := map[uint64]int{126: 2, 127: 8}[n]; extended > 0 {
			length := make([]byte, 8)
			if _, err := io.ReadFull(w.in, length[8-extended:]); err != nil {
				return err
			}
			n = binary.BigEndian.Uint64(length)
		}
		if err := w.payload(head[0]&0x0f, n); err != nil {
			return err
		}
	}
}

// payload takes the n bytes of a frame.
func (w *watcher) payload(opcode byte, n uint64) error {
	switch opcode {
	case 8:
		return errors.New("the socket was closed")
	case 9:
		return w.pong() // to an empty ping
	}
	for n > 0 {
		if w.in.Buffered() == 0 {
			if _, err := w.in.Peek(1); err != nil {
				return err
			}
		}
		piece, err := w.in.Peek(int(min(n, uint64(w.in.Buffered()))))
		if err != nil {
			return err
		}
		switch opcode {
		case 2:
			w.output(piece)
		case 1:
			if bytes.Contains(piece, []byte(`"type":"resync"`)) {
				w.mu.Lock()
				w.resyncs++
				w.mu.Unlock()
			}
		}
		w.in.Discard(len(piece))
		n -= uint64(len(piece))
	}
	return nil
}

// output looks for stamps.
func (w *watcher) output(p []byte) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		w.ready = bytes.Contains(p, []byte("ready"))
		w.changed.Broadcast()
	}
	for len(p) > 0 {
		if w.digits == nil {
			i := bytes.IndexByte(p, stampMark)
			if i < 0 {
				return
			}
			w.digits = make([]byte, 0, stampDigits)
			p = p[i+1:]
		}
		n := min(stampDigits-len(w.digits), len(p))
		w.digits = append(w.digits, p[:n]...)
		p = p[n:]
		if len(w.digits) < stampDigits {
			return
		}
		w.stamped(now)
		w.digits = nil
	}
}

// stamped counts a chunk. The caller holds mu.
func (w *watcher) stamped(now time.Time) {
	var micros int64
	for _, d := range w.digits {
		micros = micros*10 + int64(d-'0')
	}
	due := time.UnixMicro(micros)
	if due.Before(w.since) {
		return
	}
	w.count++
	w.delays.add(now.Sub(due))
	w.changed.Broadcast()
}

// begin starts a block.
func (w *watcher) begin(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.count, w.delays, w.resyncs = now, 0, delays{}, 0
}

// await waits until done holds or the socket ends. alarm, when it fires, ends
// the wait as well.
func (w *watcher) await(within time.Duration, done func() bool) error {
	late := false
	alarm := time.AfterFunc(within, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		late = true
		w.changed.Broadcast()
	})
	defer alarm.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !done() {
		if w.err != nil {
			return w.err
		}
		if late {
			return fmt.Errorf("not within %v: %d chunks came", within, w.count)
		}
		w.changed.Wait()
	}
	return nil
}

// write sends one masked binary frame of less than 126 bytes.
func (w *watcher) write(keys string) error {
	frame := append([]byte{0x82, 0x80 | byte(len(keys)), 0, 0, 0, 0}, keys...) // masked with zeros
	_, err := w.conn.Write(frame)
	return err
}

// pong answers a ping, which is empty.
func (w *watcher) pong() error {
	_, err := w.conn.Write([]byte{0x8a, 0x80, 0, 0, 0, 0})
	return err
}

func (w *watcher) close() { w.conn.Close() }

// delays is a histogram of times: each bucket ends 2 % above the one before.
type delays struct {
	buckets [delayBuckets]uint32
	n       int
}

const (
	delayBuckets = 1000
	delayGrowth  = 1.02
)

func (d *delays) add(t time.Duration) {
	i := 0
	if us := float64(t.Microseconds()); us > 1 {
		i = min(int(math.Log(us)/math.Log(delayGrowth)), delayBuckets-1)
	}
	d.buckets[i]++
	d.n++
}

func (d *delays) merge(o *delays) {
	for i, n := range o.buckets {
		d.buckets[i] += n
	}
	d.n += o.n
}

// percentile returns an upper bound of the p-th percentile.
func (d *delays) percentile(p float64) time.Duration {
	rank, seen := int(math.Ceil(p/100*float64(d.n))), 0
	for i, n := range d.buckets {
		if seen += int(n); seen >= rank && n > 0 {
			return time.Duration(math.Pow(delayGrowth, float64(i+1))) * time.Microsecond
		}
	}
	return 0
}
