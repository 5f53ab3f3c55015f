package impair

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// sinkUDP serves an address that counts the bytes it gets.
func sinkUDP(t testing.TB) (addr string, got *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	must(t, prepare(conn))
	got = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, maxRead)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			got.Add(int64(n))
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().String(), got
}

// BenchmarkUDP sends datagrams of 1,200 bytes one way, 40 in a write as QUIC
// does, never more than 2 MiB ahead of what has arrived.
func BenchmarkUDP(b *testing.B) {
	for _, profile := range []string{"direct", "none", "delay=5ms", "delay=5ms,jitter=1ms,loss=2%,reorder=1%", "delay=5ms,rate=800mbit,queue=4MiB"} {
		b.Run(profile, func(b *testing.B) {
			addr, got := sinkUDP(b)
			count := func() DirectionCounts { return DirectionCounts{} }
			if profile != "direct" {
				u := listenUDP(b, addr, profile)
				addr, count = u.Addr(), func() DirectionCounts { return u.Counts().Up }
			}
			conn, err := net.Dial("udp", addr)
			must(b, err)
			defer conn.Close()
			const segment, ahead = 1200, 2 << 20
			data := make([]byte, 40*segment)
			b.SetBytes(int64(len(data)))
			sent := int64(0)
			began := cpu()
			wait := func(most int64) {
				for since := time.Now(); time.Since(since) < time.Second; <-time.After(20 * time.Microsecond) {
					if c := count(); sent-got.Load()-segment*(c.Lost-c.Duplicated) <= most {
						return
					}
				}
				b.Fatalf("%d of %d bytes arrived, %+v", got.Load(), sent, count())
			}
			for b.Loop() {
				if sent-got.Load() > ahead {
					wait(ahead)
				}
				_ = write(conn.(*net.UDPConn), noAddr, data, segment)
				sent += int64(len(data))
			}
			wait(0)
			b.ReportMetric(float64(cpu()-began)/float64(b.Elapsed()), "cores")
		})
	}
}

// BenchmarkDelay reports by how much a datagram comes later than it should,
// 1,000 a second.
func BenchmarkDelay(b *testing.B) {
	for _, profile := range []string{"none", "delay=25ms"} {
		b.Run(profile, func(b *testing.B) {
			conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			must(b, err)
			defer conn.Close()
			u := listenUDP(b, conn.LocalAddr().String(), profile)
			from := dialUDP(b, u)
			go func() {
				ticker := time.NewTicker(time.Millisecond)
				defer ticker.Stop()
				for range ticker.C {
					if _, err := from.Write(binary.BigEndian.AppendUint64(nil, uint64(u.ways[Up].schedule.now()))); err != nil {
						return
					}
				}
			}()
			var late []time.Duration
			buf := make([]byte, 16)
			for b.Loop() {
				n, err := conn.Read(buf)
				must(b, err)
				late = append(late, u.ways[Up].schedule.now()-time.Duration(binary.BigEndian.Uint64(buf[:n]))-u.Profile().Up.Delay)
			}
			from.Close()
			slices.Sort(late)
			for name, q := range map[string]float64{"p50-µs": 0.5, "p99-µs": 0.99, "max-µs": 1} {
				b.ReportMetric(float64(late[int(q*float64(len(late)-1))].Microseconds()), name)
			}
		})
	}
}

// BenchmarkTCP sends bytes one way over a connection.
func BenchmarkTCP(b *testing.B) {
	for _, profile := range []string{"direct", "none", "delay=5ms"} {
		b.Run(profile, func(b *testing.B) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			must(b, err)
			defer listener.Close()
			addr := listener.Addr().String()
			if profile != "direct" {
				addr = listenTCP(b, addr, profile).Addr()
			}
			from, err := net.Dial("tcp", addr)
			must(b, err)
			to, err := listener.Accept()
			must(b, err)
			done := make(chan int64, 1)
			go func() {
				n, _ := io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{to})
				done <- n
			}()
			data := make([]byte, 64<<10)
			b.SetBytes(int64(len(data)))
			began := cpu()
			for b.Loop() {
				_, err := from.Write(data)
				must(b, err)
			}
			from.Close()
			if n := <-done; n < int64(len(data)) {
				b.Errorf("%d bytes arrived", n)
			}
			b.ReportMetric(float64(cpu()-began)/float64(b.Elapsed()), "cores")
			to.Close()
		})
	}
}
