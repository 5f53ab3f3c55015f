package egress

import (
	"io"
	"net"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// echoes returns a harness with a host that sends back what it gets, and that
// host's address.
func echoes(b *testing.B) (*harness, string) {
	h := start(b, nil)
	address := listen(b, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	h.serve("a.com:22", address)
	if err := h.rules.Decide(ses, "a.com:22", protocol.AllowAlways); err != nil {
		b.Fatal(err)
	}
	return h, address
}

func dialDirect(b *testing.B, address string) net.Conn {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

// BenchmarkTunnelThroughput sends one way, to a host that discards.
func BenchmarkTunnelThroughput(b *testing.B) {
	h := start(b, nil)
	got := make(chan int64, 1)
	address := listen(b, func(conn net.Conn) {
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	})
	h.serve("a.com:22", address)
	if err := h.rules.Decide(ses, "a.com:22", protocol.AllowAlways); err != nil {
		b.Fatal(err)
	}
	run := func(b *testing.B, conn net.Conn) {
		piece := make([]byte, 64<<10)
		b.SetBytes(int64(len(piece)))
		sent := int64(0)
		for b.Loop() {
			n, err := conn.Write(piece)
			if err != nil {
				b.Fatal(err)
			}
			sent += int64(n)
		}
		conn.Close()
		if n := <-got; n != sent {
			b.Fatalf("%d of %d bytes", n, sent)
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, dialDirect(b, address)) })
	b.Run("proxy", func(b *testing.B) { run(b, h.open(b, "a.com:22").Conn) })
}

// BenchmarkTunnelRoundTrip sends a byte and waits for it.
func BenchmarkTunnelRoundTrip(b *testing.B) {
	h, address := echoes(b)
	run := func(b *testing.B, conn net.Conn) {
		one := make([]byte, 1)
		for b.Loop() {
			if _, err := conn.Write(one); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(conn, one); err != nil {
				b.Fatal(err)
			}
		}
		conn.Close()
	}
	b.Run("direct", func(b *testing.B) { run(b, dialDirect(b, address)) })
	b.Run("proxy", func(b *testing.B) { run(b, h.open(b, "a.com:22").Conn) })
}

// BenchmarkConnect opens a connection and waits for one byte to come back.
func BenchmarkConnect(b *testing.B) {
	h, address := echoes(b)
	run := func(b *testing.B, open func() net.Conn) {
		one := make([]byte, 1)
		for b.Loop() {
			conn := open()
			if _, err := conn.Write(one); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(conn, one); err != nil {
				b.Fatal(err)
			}
			conn.Close()
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, func() net.Conn { return dialDirect(b, address) }) })
	b.Run("proxy", func(b *testing.B) { run(b, func() net.Conn { return h.open(b, "a.com:22").Conn }) })
}
