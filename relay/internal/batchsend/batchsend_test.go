package batchsend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A pair is a socket that is sent to, and its other end.
type pair struct {
	fd  int
	far net.Conn
}

// pairs returns connected TCP sockets. near isn't Go's: nobody but the test has its
// descriptor.
func pairs(tb testing.TB, n int) []pair {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	defer listener.Close()
	all := make([]pair, n)
	for i := range all {
		near, err := net.Dial("tcp", listener.Addr().String())
		must(tb, err)
		file, err := near.(*net.TCPConn).File()
		must(tb, err)
		near.Close()
		fd, err := unix.Dup(int(file.Fd()))
		must(tb, err)
		file.Close()
		must(tb, unix.SetNonblock(fd, true))
		far, err := listener.Accept()
		must(tb, err)
		all[i] = pair{fd, far}
		tb.Cleanup(func() { unix.Close(fd); far.Close() })
	}
	return all
}

// senders runs a test with each way of sending that this machine has.
func senders(t *testing.T, test func(t *testing.T, s *Sender)) {
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("direct=%t", direct), func(t *testing.T) {
			s := New(Options{Direct: direct})
			defer s.Close()
			if !direct {
				needRings(t)
			}
			test(t, s)
			if (s.Rings() > 0) == direct {
				t.Errorf("%d rings", s.Rings())
			}
		})
	}
}

// needRings skips where the kernel has no io_uring.
func needRings(t *testing.T) {
	t.Helper()
	r, err := newRing()
	if err != nil {
		t.Skip("this machine has no io_uring: ", err)
	}
	must(t, r.close())
}

// TestSend: each socket gets its own bytes, whole and in order, more sockets than one
// call serves.
func TestSend(t *testing.T) {
	senders(t, func(t *testing.T, s *Sender) {
		all := pairs(t, Most+Most/2)
		want := make([]bytes.Buffer, len(all))
		for round := range 5 {
			pieces := make([]Piece, len(all))
			for i, p := range all {
				pieces[i] = Piece{FD: p.fd, Bytes: fmt.Appendf(nil, "socket %d, round %d;", i, round)}
				want[i].Write(pieces[i].Bytes)
			}
			s.Send(pieces)
			for i, p := range pieces {
				if p.Err != nil || p.Sent != len(p.Bytes) {
					t.Fatalf("socket %d: %d of %d bytes, %v", i, p.Sent, len(p.Bytes), p.Err)
				}
			}
		}
		for i, p := range all {
			got := make([]byte, want[i].Len())
			_, err := io.ReadFull(p.far, got)
			must(t, err)
			if !bytes.Equal(got, want[i].Bytes()) {
				t.Errorf("socket %d got %q", i, got)
			}
		}
	})
}

// TestFull: a socket that takes nothing, or a part, delays nobody and is no error;
// what it took is what arrives.
func TestFull(t *testing.T) {
	senders(t, func(t *testing.T, s *Sender) {
		all := pairs(t, fewest+1)
		sent := 0
		chunk := bytes.Repeat([]byte("0123456789abcdef"), longest/16)
		for {
			pieces := make([]Piece, len(all))
			for i, p := range all {
				pieces[i] = Piece{FD: p.fd, Bytes: []byte("x")}
			}
			pieces[0].Bytes = chunk
			s.Send(pieces)
			sent += pieces[0].Sent
			for i, p := range pieces {
				if p.Err != nil || i > 0 && p.Sent != 1 {
					t.Fatalf("socket %d: %d, %v", i, p.Sent, p.Err)
				}
			}
			if pieces[0].Sent < len(chunk) {
				break
			}
		}
		must(t, unix.Shutdown(all[0].fd, unix.SHUT_WR))
		got, err := io.ReadAll(all[0].far)
		must(t, err)
		if len(got) != sent {
			t.Errorf("%d bytes arrived of %d", len(got), sent)
		}
		for i := 0; i < len(got); i += len(chunk) {
			if end := min(i+len(chunk), len(got)); !bytes.Equal(got[i:end], chunk[:end-i]) {
				t.Fatalf("other bytes arrived at %d", i)
			}
		}
	})
}

// TestBroken: a socket that is over is an error of its own.
func TestBroken(t *testing.T) {
	senders(t, func(t *testing.T, s *Sender) {
		all := pairs(t, fewest+1)
		must(t, unix.Shutdown(all[1].fd, unix.SHUT_WR))
		pieces := make([]Piece, len(all))
		for i, p := range all {
			pieces[i] = Piece{FD: p.fd, Bytes: []byte("x")}
		}
		pieces[2].FD = 1 << 20 // no descriptor
		s.Send(pieces)
		for i, p := range pieces {
			want := map[int]error{1: syscall.EPIPE, 2: syscall.EBADF}[i]
			if !errors.Is(p.Err, want) || (p.Sent == 1) != (want == nil) {
				t.Errorf("socket %d: %d, %v, want %v", i, p.Sent, p.Err, want)
			}
		}
	})
}

// TestLostRing: when a ring stops working in the middle, everything is sent all the
// same, and once.
func TestLostRing(t *testing.T) {
	needRings(t)
	var log bytes.Buffer
	s := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer s.Close()
	all := pairs(t, 2*fewest)
	send := func() {
		t.Helper()
		pieces := make([]Piece, len(all))
		for i, p := range all {
			pieces[i] = Piece{FD: p.fd, Bytes: []byte{byte(i)}}
		}
		s.Send(pieces)
		for i, p := range all {
			p.far.SetReadDeadline(time.Now().Add(10 * time.Second))
			got := make([]byte, 2)
			if n, err := p.far.Read(got); err != nil || n != 1 || got[0] != byte(i) {
				t.Fatalf("socket %d: %v, %v", i, got[:n], err)
			}
		}
	}
	send()
	// Its descriptor is another file now, which the kernel refuses to enter.
	pipe := make([]int, 2)
	must(t, unix.Pipe2(pipe, unix.O_CLOEXEC))
	must(t, unix.Dup3(pipe[0], s.idle[0].fd, unix.O_CLOEXEC))
	unix.Close(pipe[0])
	unix.Close(pipe[1])
	send()
	send()
	if n := strings.Count(log.String(), "io_uring"); n == 0 || s.Rings() != 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d rings, log: %s", s.Rings(), &log)
	}
}

// TestAllocations: a batch costs no memory.
func TestAllocations(t *testing.T) {
	senders(t, func(t *testing.T, s *Sender) {
		all := pairs(t, 32)
		for _, p := range all {
			go io.Copy(io.Discard, p.far) // ends with the test's sockets
		}
		pieces := make([]Piece, len(all))
		if n := testing.AllocsPerRun(100, func() {
			for i, p := range all {
				pieces[i] = Piece{FD: p.fd, Bytes: hello}
			}
			s.Send(pieces)
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

var hello = []byte("hello")

// BenchmarkSend compares sending by a ring with a call for each socket.
func BenchmarkSend(b *testing.B) {
	for _, direct := range []bool{false, true} {
		for _, size := range []int{64, 1024, 8192} {
			b.Run(fmt.Sprintf("direct=%t/%d", direct, size), func(b *testing.B) {
				s := New(Options{Direct: direct})
				defer s.Close()
				all := pairs(b, Most)
				for _, p := range all {
					go io.Copy(io.Discard, p.far)
				}
				data := make([]byte, size)
				for i := range data {
					data[i] = byte(rand.Uint32())
				}
				pieces := make([]Piece, len(all))
				for b.Loop() {
					for i, p := range all {
						pieces[i] = Piece{FD: p.fd, Bytes: data}
					}
					s.Send(pieces)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/piece")
			})
		}
	}
}
