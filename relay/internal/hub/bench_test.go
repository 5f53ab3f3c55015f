package hub

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// A tcpSink is a socket that writes without waiting, as the gateway's.
type tcpSink struct {
	sink
	mu   sync.Mutex
	conn net.Conn
	fd   int
}

func newTCPSink(b testing.TB, listener net.Listener) *tcpSink {
	b.Helper()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		b.Fatal(err)
	}
	read := make(chan struct{})
	go func() { // the cleanup waits for it
		defer close(read)
		io.Copy(io.Discard, far)
	}()
	b.Cleanup(func() {
		near.Close()
		<-read
		far.Close()
	})
	s := &tcpSink{conn: near}
	raw, err := near.(*net.TCPConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { s.fd = int(fd) }); err != nil {
		b.Fatal(err)
	}
	return s
}

func (s *tcpSink) Begin() bool { return s.mu.TryLock() }

func (s *tcpSink) Offer(frames net.Buffers) (bool, error) {
	defer s.mu.Unlock()
	for _, frame := range frames {
		if _, err := s.conn.Write(frame); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *tcpSink) FD() int { return s.fd }

func (s *tcpSink) Seal(frame, arena []byte) (wire, after []byte, err error) { return frame, arena, nil }

func (s *tcpSink) Sent(wire []byte, n int) bool {
	s.mu.Unlock()
	return n == len(wire)
}

// cpu returns the time that this thread has had of a processor.
func cpu(b *testing.B) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if err := syscall.Getrusage(thread, &usage); err != nil {
		b.Skip(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkFanOut delivers chunks to viewers who keep up, and compares that
// with a bare loop of writes to the same sockets, in turns. Half of the viewers
// acknowledge; as many more again have stalled.
func BenchmarkFanOut(b *testing.B) {
	for _, direct := range []bool{false, true} {
		for _, viewers := range []int{300, 1000} {
			b.Run(fmt.Sprintf("direct=%t/%d", direct, viewers), func(b *testing.B) { benchmarkFanOut(b, viewers, direct) })
		}
	}
}

func benchmarkFanOut(b *testing.B, viewers int, direct bool) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	h := still()
	var sinks []*tcpSink
	for i := range 2 * viewers {
		g := Guest{Counts: i%2 == 0 || i >= viewers}
		if i < viewers {
			s := newTCPSink(b, listener)
			sinks = append(sinks, s)
			g.Socket = s
		}
		v := seatAs(h, turn.SocketID(i), "usr_1", time.Now().Add(time.Hour), g)
		v.outbox.notices = nil
	}
	stall(b, h, viewers)
	out := h.fanout()
	out.sender = batchsend.New(batchsend.Options{Direct: direct})
	defer out.sender.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	chunk := make([]byte, 1000)
	const round = 20
	var ratios []float64
	var hub, bare time.Duration
	for b.Loop() {
		offset := h.feed.Head().Offset
		began := cpu(b)
		for range round {
			if err := h.feed.Append(protocol.Data{Offset: offset, Bytes: chunk}); err != nil {
				b.Fatal(err)
			}
			out.deliver()
			offset += uint64(len(chunk))
		}
		between := cpu(b)
		for range round {
			frame := replay.AppendBinaryFrame(nil, chunk)
			for _, s := range sinks {
				s.conn.Write(frame)
			}
		}
		after := cpu(b)
		hub, bare = hub+between-began, bare+after-between
		ratios = append(ratios, float64(between-began)/float64(after-between))
		for _, v := range h.audience.viewers { // outside the measured part
			v.reader.Acked(offset)
		}
	}
	n := float64(len(ratios) * round * viewers)
	slices.Sort(ratios)
	b.ReportMetric(float64(hub)/n, "cpu-ns/chunk")
	b.ReportMetric(float64(bare)/n, "bare-cpu-ns/chunk")
	b.ReportMetric(ratios[len(ratios)/2], "x-bare")
}

// stall has the last n viewers be sent all that they may leave unacknowledged,
// and the others what there is.
func stall(b *testing.B, h *Hub, n int) {
	b.Helper()
	offset := uint64(0)
	for offset < protocol.MaxOutputUnacked {
		if err := h.feed.Append(protocol.Data{Offset: offset, Bytes: make([]byte, protocol.MaxDataBytes)}); err != nil {
			b.Fatal(err)
		}
		h.fanout().deliver()
		offset += protocol.MaxDataBytes
		for id, v := range h.audience.viewers {
			if int(id) < n {
				v.reader.Acked(offset)
			}
		}
	}
	for id, v := range h.audience.viewers {
		for more := int(id) >= n; more; {
			_, out := v.reader.Next(nil, false)
			more = out.More
		}
		if v.reader.Standing().Blocked != (int(id) >= n) {
			b.Fatalf("viewer %d: %+v", id, v.reader.Standing())
		}
	}
}
