package link

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// echo serves TCP connections that send back what they get.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String()
}

func dial(t *testing.T, l *TCP) net.Conn {
	t.Helper()
	conn, err := l.Dial(context.Background(), "tcp", "")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return conn
}

func TestTCP(t *testing.T) {
	l, err := ListenTCP(echo(t))
	must(t, err)
	t.Cleanup(func() { l.Close() })

	conn := dial(t, l)
	sent := make([]byte, 1<<20)
	rand.Read(sent)
	go conn.Write(sent)
	got := make([]byte, len(sent))
	_, err = io.ReadFull(conn, got)
	must(t, err)
	if !bytes.Equal(got, sent) {
		t.Error("other bytes come back")
	}

	l.SetRate(40_000)
	conn = dial(t, l)
	began := time.Now()
	_, err = conn.Write(sent[:8000])
	must(t, err)
	_, err = io.ReadFull(conn, got[:8000])
	must(t, err)
	if took := time.Since(began); took < 190*time.Millisecond {
		t.Errorf("8000 bytes at 40 kB/s took %v", took)
	}
	l.SetRate(0)

	l.Stall(true)
	_, err = conn.Write(sent[:10])
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	if n, err := conn.Read(got); err == nil {
		t.Errorf("%d bytes passed a link that stands still", n)
	}
	must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	l.Stall(false)
	_, err = io.ReadFull(conn, got[:10])
	must(t, err)

	if n := l.Cut(); n != 2 {
		t.Errorf("%d connections were cut, not 2", n)
	}
	if _, err := conn.Read(got); err == nil {
		t.Error("the connection was not cut")
	}
	l.Bar(true)
	if _, err := dial(t, l).Read(got); err == nil {
		t.Error("a barred link lets something pass")
	}
	l.Bar(false)
	conn = dial(t, l)
	_, err = conn.Write(sent[:10])
	must(t, err)
	_, err = io.ReadFull(conn, got[:10])
	must(t, err)
}

func TestUDP(t *testing.T) {
	target, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := target.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			target.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	t.Cleanup(func() { target.Close(); <-done })
	l, err := ListenUDP(target.LocalAddr().String(), 1)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	conn, err := net.Dial("udp", l.Addr())
	must(t, err)
	t.Cleanup(func() { conn.Close() })

	exchange := func() bool {
		_, err := conn.Write([]byte("ping"))
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		_, err = conn.Read(make([]byte, 16))
		return err == nil
	}
	if !exchange() {
		t.Error("nothing comes back")
	}
	l.SetLoss(0.5)
	back := 0
	for range 40 {
		if exchange() {
			back++
		}
	}
	passed, lost := l.Counts()
	if back == 0 || back == 40 || lost == 0 || passed < lost/4 {
		t.Errorf("%d of 40 came back; %d passed, %d lost", back, passed, lost)
	}
}
