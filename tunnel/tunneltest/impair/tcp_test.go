package impair

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"
)

// echoTCP serves connections that send back what they get, to the end of it.
func echoTCP(t testing.TB) string {
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
			go func() { // ends with the connection
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String()
}

func listenTCP(t testing.TB, target, profile string) *TCP {
	t.Helper()
	p, err := Parse(profile)
	must(t, err)
	l, err := ListenTCP(TCPConfig{Target: target, Seed: 1, Profile: p})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

func dialTCP(t testing.TB, l *TCP) *net.TCPConn {
	t.Helper()
	conn, err := l.Dial(t.Context(), "tcp", "")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn.(*net.TCPConn)
}

// tryTCP returns how a connection ends, or that it can't be made.
func tryTCP(t testing.TB, l *TCP) error {
	t.Helper()
	conn, err := l.Dial(t.Context(), "tcp", "")
	if err != nil {
		return err
	}
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Read(make([]byte, 1))
	return err
}

// roundTrip sends n bytes and returns how long it takes until they are back.
func roundTrip(t testing.TB, conn *net.TCPConn, n int) time.Duration {
	t.Helper()
	sent, got := make([]byte, n), make([]byte, n)
	rand.Read(sent)
	began := time.Now()
	go conn.Write(sent)
	_, err := io.ReadFull(conn, got)
	must(t, err)
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came back")
	}
	return time.Since(began)
}

func TestTCPDoesNothing(t *testing.T) {
	l := listenTCP(t, echoTCP(t), "")
	conn := dialTCP(t, l)
	roundTrip(t, conn, 4<<20)
	must(t, conn.CloseWrite())
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %d bytes, %v", len(rest), err)
	}
	if c := l.Counts(); c.UpBytes != 4<<20 || c.DownBytes != 4<<20 || c.Accepted != 1 {
		t.Errorf("%+v", c)
	}
}

func TestTCPDelays(t *testing.T) {
	l := listenTCP(t, echoTCP(t), "delay=10ms")
	began := time.Now()
	conn := dialTCP(t, l)
	roundTrip(t, conn, 10)
	if took := time.Since(began); took < 40*time.Millisecond-2*slack {
		t.Errorf("the first bytes took %v, less than two round trips", took)
	}
	if took := roundTrip(t, conn, 10); took < 20*time.Millisecond-2*slack || took > time.Minute {
		t.Errorf("the next ones took %v", took)
	}
	began = time.Now()
	must(t, conn.CloseWrite())
	_, err := io.ReadAll(conn)
	must(t, err)
	if took := time.Since(began); took < 20*time.Millisecond-2*slack {
		t.Errorf("the end took %v", took)
	}
}

func TestTCPRate(t *testing.T) {
	conn := dialTCP(t, listenTCP(t, echoTCP(t), "down.rate=320kbit,queue=4KiB"))
	if took := roundTrip(t, conn, 8000); took < 180*time.Millisecond {
		t.Errorf("8000 bytes at 40 kB/s took %v", took)
	}
}

func TestTCPStall(t *testing.T) {
	for _, profile := range []string{"", "delay=1ms"} {
		l := listenTCP(t, echoTCP(t), profile)
		conn := dialTCP(t, l)
		roundTrip(t, conn, 10)
		for _, side := range []Side{Up, Down, Duplex} {
			l.Stall(side, true)
			_, err := conn.Write(make([]byte, 10))
			must(t, err)
			got := make([]byte, 10)
			must(t, conn.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
			if n, err := conn.Read(got); err == nil {
				t.Errorf("%v: %d bytes passed", side, n)
			}
			must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
			l.Stall(side, false)
			_, err = io.ReadFull(conn, got)
			must(t, err)
		}
	}
}

func TestTCPCutAndRefuse(t *testing.T) {
	l := listenTCP(t, echoTCP(t), "delay=1ms")
	one, two := dialTCP(t, l), dialTCP(t, l)
	roundTrip(t, one, 10)
	roundTrip(t, two, 10)
	if n := l.Cut(); n != 2 {
		t.Errorf("%d connections were cut", n)
	}
	if _, err := one.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the connection ended with %v", err)
	}
	l.Refuse(true)
	if err := tryTCP(t, l); err == nil {
		t.Error("a new connection was not refused")
	}
	l.Refuse(false)
	roundTrip(t, dialTCP(t, l), 10)
	for late := time.Now().Add(time.Minute); l.Counts().Connections != 1 && time.Now().Before(late); { // those that were cut go in their time
		<-time.After(time.Millisecond)
	}
	if c := l.Counts(); c.Cut != 2 || c.Refused != 1 || c.Accepted != 3 || c.Connections != 1 {
		t.Errorf("%+v", c)
	}
}

func TestTCPTargetGone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	l := listenTCP(t, listener.Addr().String(), "")
	if err := tryTCP(t, l); err == nil || err == io.EOF {
		t.Errorf("the connection ended with %v", err)
	}
	if c := l.Counts(); c.Failed != 1 {
		t.Errorf("%+v", c)
	}
}

func TestTCPWantsNoDatagramFaults(t *testing.T) {
	if _, err := ListenTCP(TCPConfig{Target: "127.0.0.1:1", Profile: Both(Path{Loss: 0.1})}); err == nil {
		t.Error("it loses bytes")
	}
}
