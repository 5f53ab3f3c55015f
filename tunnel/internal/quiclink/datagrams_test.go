package quiclink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// loopbackSocket returns a socket on a loopback address.
func loopbackSocket(t *testing.T, ip string) *datagrams {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(ip)})
	if err != nil {
		t.Skip(err) // there may be no IPv6
	}
	t.Cleanup(func() { conn.Close() })
	d, err := newDatagrams(conn)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// segmented is the control message that has a write sent as datagrams of size bytes.
func segmented(size int) []byte {
	control := make([]byte, unix.CmsgSpace(2))
	binary.NativeEndian.PutUint64(control, uint64(unix.CmsgLen(2)))
	binary.NativeEndian.PutUint32(control[8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(control[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(size))
	return control
}

// batchOf returns room for n datagrams.
func batchOf(n int) []ipv4.Message {
	messages := make([]ipv4.Message, n)
	for i := range messages {
		messages[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 1452)}, OOB: make([]byte, 128)}
	}
	return messages
}

// TestBurstIsTakenApart: what a sender wrote at once comes as the datagrams that it
// is, with their sender, whatever the family of the sockets and of the address.
func TestBurstIsTakenApart(t *testing.T) {
	for _, at := range []struct{ from, to, dial string }{
		{"127.0.0.1", "127.0.0.1", "127.0.0.1"}, {"::1", "::1", "::1"}, {"0.0.0.0", "::", "127.0.0.1"}, {"::", "0.0.0.0", "127.0.0.1"},
	} {
		from, to := loopbackSocket(t, at.from), loopbackSocket(t, at.to)
		addr := &net.UDPAddr{IP: net.ParseIP(at.dial), Port: to.LocalAddr().(*net.UDPAddr).Port}
		var want [][]byte
		for i, burst := range []struct{ datagrams, size, last int }{{1, 10, 10}, {30, 1200, 1200}, {12, 1452, 3}, {2, 1, 1}, {1, 1452, 1452}} {
			whole := bytes.Repeat([]byte{byte(i)}, (burst.datagrams-1)*burst.size+burst.last)
			if n, _, err := from.WriteMsgUDP(whole, segmented(burst.size), addr); err != nil || n != len(whole) {
				t.Fatalf("%v: wrote %d: %v", at, n, err)
			}
			for rest := whole; len(rest) > 0; rest = rest[min(len(rest), burst.size):] {
				want = append(want, rest[:min(len(rest), burst.size)])
			}
		}
		to.SetReadDeadline(time.Now().Add(10 * time.Second))
		for got := 0; got < len(want); {
			messages := batchOf(8)
			n, err := to.ReadBatch(messages, 0)
			if err != nil {
				t.Fatalf("%v: after %d of %d: %v", at, got, len(want), err)
			}
			for _, m := range messages[:n] {
				if !bytes.Equal(m.Buffers[0][:m.N], want[got]) {
					t.Fatalf("%v: datagram %d is %d bytes of %v, want %d", at, got, m.N, m.Buffers[0][:1], len(want[got]))
				}
				if sender := m.Addr.(*net.UDPAddr); sender.Port != from.LocalAddr().(*net.UDPAddr).Port || !sender.IP.Equal(addr.IP) {
					t.Fatalf("%v: it is from %v", at, sender)
				}
				got++
			}
		}
	}
}

// TestDatagramTooLong: of one that is longer than any packet comes what fits, and
// the next is whole.
func TestDatagramTooLong(t *testing.T) {
	from, to := loopbackSocket(t, "127.0.0.1"), loopbackSocket(t, "127.0.0.1")
	addr := to.LocalAddr().(*net.UDPAddr)
	for _, size := range []int{9000, 5, 0} {
		if _, _, err := from.WriteMsgUDP(make([]byte, size), nil, addr); err != nil {
			t.Fatal(err)
		}
	}
	to.SetReadDeadline(time.Now().Add(10 * time.Second))
	for _, want := range []int{1452, 5, 0} {
		messages := batchOf(1)
		if n, err := to.ReadBatch(messages, 0); err != nil || n != 1 || messages[0].N != want {
			t.Fatalf("%d of %d bytes, want %d: %v", n, messages[0].N, want, err)
		}
	}
}

// TestDatagramErrors: errors are those of package net, by which quic-go goes.
func TestDatagramErrors(t *testing.T) {
	d := loopbackSocket(t, "127.0.0.1")
	addr := d.LocalAddr().(*net.UDPAddr)
	if _, _, err := d.WriteMsgUDP(make([]byte, 70_000), nil, addr); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("a datagram of 70,000 bytes: %v", err)
	}
	if _, _, err := d.WriteMsgUDP([]byte("x"), nil, &net.UDPAddr{IP: net.IPv6loopback, Port: 9}); err == nil {
		t.Error("an IPv4 socket sent to IPv6")
	}
	d.SetReadDeadline(time.Unix(1, 0))
	var timeout net.Error
	if _, err := d.ReadBatch(batchOf(8), 0); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("read after its deadline: %v", err)
	}
	d.Close()
	if _, err := d.ReadBatch(batchOf(8), 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed socket: %v", err)
	}
	if _, _, err := d.WriteMsgUDP([]byte("x"), nil, addr); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to a closed socket: %v", err)
	}
}

// FuzzSegmentOf: whatever the control messages say, there is a length to go on by.
func FuzzSegmentOf(f *testing.F) {
	f.Add(segmented(1200), 5000)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, control []byte, n int) {
		n &= 0xffff
		if segment := segmentOf(control, n); segment < 1 {
			t.Errorf("%d", segment)
		}
	})
}
