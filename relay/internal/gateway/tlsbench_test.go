package gateway

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// BenchmarkTLS sends chunks to the relay's own sockets over TLS 1.3, many at a time,
// and compares that with a bare loop of tls.Conn.Write to as many others, in turns.
func BenchmarkTLS(b *testing.B) {
	for _, direct := range []bool{false, true} {
		b.Run(fmt.Sprintf("direct=%t", direct), func(b *testing.B) { benchmarkTLS(b, 300, direct) })
	}
}

func benchmarkTLS(b *testing.B, sockets int, direct bool) {
	conns, bare := securedSockets(b, sockets)
	sender := batchsend.New(batchsend.Options{Direct: direct})
	defer sender.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const round, together = 20, 64
	frame := replay.AppendBinaryFrame(nil, make([]byte, 1000))
	var ratios []float64
	for b.Loop() {
		began := cpu(b)
		for range round {
			for batch := range slices.Chunk(conns, together) {
				sendSealed(b, sender, batch, frame)
			}
		}
		between := cpu(b)
		for range round {
			for _, c := range bare {
				c.Write(frame)
			}
		}
		ratios = append(ratios, float64(between-began)/float64(cpu(b)-between))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-bare")
}

// sendSealed offers a frame to all of a batch that are idle.
func sendSealed(b *testing.B, sender *batchsend.Sender, batch []*Conn, frame []byte) {
	var pieces []batchsend.Piece
	var of []*Conn
	var arena []byte
	for _, c := range batch {
		if !c.Begin() {
			continue
		}
		wire, after, err := c.Seal(frame, arena)
		if err != nil {
			b.Fatal(err)
		}
		arena, pieces, of = after, append(pieces, batchsend.Piece{FD: c.FD(), Bytes: wire}), append(of, c)
	}
	sender.Send(pieces)
	for i, p := range pieces {
		of[i].Sent(p.Bytes, p.Sent)
	}
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

// securedSockets returns sockets as the relay has them, and bare TLS connections. Their other
// ends read all.
func securedSockets(b *testing.B, n int) (conns []*Conn, bare []net.Conn) {
	upgraded := make(chan *Conn)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Upgrade(w, r, nil, 1<<20)
		if err != nil {
			b.Error(err)
		}
		upgraded <- c
	}))
	server.Listener = Gated(server.Listener)
	server.StartTLS()
	b.Cleanup(server.Close)
	dial := func(address string) *tls.Conn {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		return c
	}
	for range n {
		c := dial(server.Listener.Addr().String())
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		conns = append(conns, <-upgraded)
		go io.Copy(io.Discard, c) // ends with c
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { plain.Close() })
	listener := tls.NewListener(plain, server.TLS)
	for range n {
		accepted := make(chan net.Conn)
		go func() { // received below
			c, err := listener.Accept()
			if err == nil {
				err = c.(*tls.Conn).Handshake()
			}
			if err != nil {
				b.Error(err)
			}
			accepted <- c
		}()
		c := dial(plain.Addr().String())
		bare = append(bare, <-accepted)
		go io.Copy(io.Discard, c) // ends with c
	}
	return conns, bare
}
