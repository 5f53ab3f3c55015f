package quiet_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tunnel/quiet"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair returns both ends of a TCP connection, the first as a Conn.
func pair(t testing.TB) (*quiet.Conn, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	far, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	near, err := listener.Accept()
	must(t, err)
	t.Cleanup(func() { near.Close(); far.Close() })
	return quiet.Wrap(near).(*quiet.Conn), far
}

// TestConnCarries: whatever is written arrives once and in order, both ways and more
// than the kernel takes at once, and the end is an end.
func TestConnCarries(t *testing.T) {
	conn, far := pair(t)
	data := make([]byte, 8<<20)
	rand.Read(data)
	back := make(chan error, 1)
	go func() { // received below
		_, err := io.Copy(far, far)
		far.Close()
		back <- err
	}()
	wrote := make(chan error, 1)
	go func() { // received below
		rest := data
		for i := 1; len(rest) > 0; i = i*3%40_000 + 1 {
			n, err := conn.Write(rest[:min(i, len(rest))])
			if err != nil {
				wrote <- err
				return
			}
			rest = rest[n:]
		}
		wrote <- conn.CloseWrite()
	}()
	got, err := io.ReadAll(struct{ io.Reader }{conn})
	must(t, err)
	must(t, <-wrote)
	must(t, <-back)
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back that differ from the %d written", len(got), len(data))
	}
}

// TestConnIsInterrupted: deadlines and Close end reads and writes that wait.
func TestConnIsInterrupted(t *testing.T) {
	conn, _ := pair(t)
	for name, call := range map[string]func([]byte) (int, error){"read": conn.Read, "write": conn.Write} {
		failed := make(chan error, 1)
		go func() { // received below
			for {
				if _, err := call(make([]byte, 1<<20)); err != nil {
					failed <- err
					return
				}
			}
		}()
		conn.SetDeadline(time.Unix(1, 0))
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s after its deadline: %v", name, err)
		}
		conn.SetDeadline(time.Time{})
	}
	failed := make(chan error, 1)
	go func() { // received below
		_, err := conn.Read(make([]byte, 1))
		failed <- err
	}()
	conn.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read of a closed connection: %v", err)
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to a closed connection: %v", err)
	}
}

// TestConnAllocates: a message there and back costs next to no memory.
func TestConnAllocates(t *testing.T) {
	conn, far := pair(t)
	message := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() {
		conn.Write(message)
		io.ReadFull(far, message)
		far.Write(message)
		conn.Read(message)
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// TestWrapOthers: what isn't TCP stays as it is.
func TestWrapOthers(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	if quiet.Wrap(a) != a {
		t.Error("a pipe was wrapped")
	}
}

// TestAwait: who waits hears of what was there before, of what comes, and of each end;
// what is awaited is still to be read.
func TestAwait(t *testing.T) {
	for name, end := range map[string]func(near, far net.Conn) error{
		"its peer ends": func(_, far net.Conn) error { return far.Close() },
		"it is closed":  func(near, _ net.Conn) error { return near.Close() },
		"a deadline":    func(near, _ net.Conn) error { return near.SetReadDeadline(time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, far := pair(t)
			if _, err := far.Write([]byte("ab")); err != nil {
				t.Fatal(err)
			}
			for _, want := range "ab" { // the second time without anything new
				if err := conn.Await(); err != nil {
					t.Fatal(err)
				}
				one := make([]byte, 1)
				if _, err := conn.Read(one); err != nil || rune(one[0]) != want {
					t.Fatalf("%q, %v", one, err)
				}
			}
			waited := make(chan error, 1)
			for _, happens := range []func() error{
				func() error { _, err := far.Write([]byte("c")); return err },
				func() error { return end(conn, far) },
			} {
				go func() { waited <- conn.Await() }() // received below
				if err := happens(); err != nil {
					t.Fatal(err)
				}
				<-waited
				one := make([]byte, 1)
				if n, err := conn.Read(one); (n == 1) != (err == nil) {
					t.Errorf("%d, %v", n, err)
				}
			}
		})
	}
}
