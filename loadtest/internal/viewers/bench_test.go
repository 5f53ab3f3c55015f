package viewers

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

// BenchmarkViewer reads, checks and times chunks as a generator does, from 1,000
// sockets: with a SHA-256, without, and as highest-rate has it, who lets arrivals
// gather; from a loop that writes each chunk by itself, and from one that writes
// eight at a time, as a server does that has more to write than time. ns/op includes
// these writes; reader-ns/chunk is the processor time of all but them.
func BenchmarkViewer(b *testing.B) {
	gather := Spec{NoSum: true, Gather: 5 * time.Millisecond}
	for _, row := range []struct {
		name  string
		spec  Spec
		burst int
	}{{"sum", Spec{}, 1}, {"compare", Spec{NoSum: true}, 1}, {"gather", gather, 1}, {"sum8", Spec{}, 8}, {"gather8", gather, 8}} {
		b.Run(row.name, func(b *testing.B) { benchmarkViewer(b, row.spec, row.burst) })
	}
}

func benchmarkViewer(b *testing.B, spec Spec, burst int) {
	const sockets = 1000
	var mu sync.Mutex
	var conns []net.Conn
	all := make(chan struct{}) // closed when there are as many as sockets
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw := &kept{ResponseWriter: w}
		if _, err := websocket.Accept(raw, r, nil); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if conns = append(conns, raw.conn); len(conns) == sockets {
			close(all) // viewers are in before their handlers get here
		}
	}))
	defer server.Close()
	rec := measure.NewRecorder()
	rec.Begin(time.Now())
	spec.URL, spec.Viewers = "ws"+strings.TrimPrefix(server.URL, "http"), sockets
	c, err := newWorker(spec, 0, 1, rec)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if in, err := c.join(b.Context(), Join{Within: 10 * time.Second}); err != nil || in.In != sockets {
		b.Fatal(in, err)
	}
	<-all
	rounds := max(1, b.N/sockets/burst) * burst
	stream := pattern.Spec{Seed: 1, Chunk: 1024, Rate: 1e6, Start: time.Now(), Chunks: rounds}
	if _, err := c.arm(b.Context(), Arm{Streams: []pattern.Spec{stream}}); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	whole := used(b, unix.RUSAGE_SELF)
	writing := writeAll(b, conns, stream, burst)
	tally, err := c.finish(b.Context(), Finish{Deadline: time.Now().Add(time.Minute)})
	whole = used(b, unix.RUSAGE_SELF) - whole
	b.StopTimer()
	if err != nil || tally.Clean != sockets {
		b.Fatal(fmt.Sprintf("%+v", tally), err)
	}
	b.ReportMetric(float64((whole-writing).Nanoseconds())/float64(rounds*sockets), "reader-ns/chunk")
	for _, conn := range conns {
		conn.Close()
	}
}

// writeAll writes the stream to all, so many chunks at once, and returns the processor
// time of that.
func writeAll(b *testing.B, conns []net.Conn, stream pattern.Spec, burst int) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := used(b, unix.RUSAGE_THREAD)
	var frame []byte
	for k := 0; k < stream.Chunks; k += burst {
		frame = frame[:0]
		for i := range burst {
			frame = binary.BigEndian.AppendUint16(append(frame, 0x82, 126), uint16(stream.Chunk))
			frame = stream.Append(frame, k+i)
		}
		for _, conn := range conns {
			if _, err := conn.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
	}
	return used(b, unix.RUSAGE_THREAD) - began
}

// used returns the processor time of this process or thread so far.
func used(b *testing.B, who int) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(who, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// kept gives the connection of a WebSocket away.
type kept struct {
	http.ResponseWriter
	conn net.Conn
}

func (k *kept) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(k.ResponseWriter).Hijack()
	k.conn = conn
	return conn, rw, err
}
