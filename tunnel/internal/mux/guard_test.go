package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func header(version, typ byte, flags uint16, stream, length uint32) []byte {
	b := []byte{version, typ}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

func TestGuardObjects(t *testing.T) {
	syn := func(id uint32) []byte { return header(0, typeWindow, flagSYN, id, 0) }
	opens := func(n int) (all []byte) {
		for i := range n {
			all = append(all, syn(uint32(2*i+1))...)
		}
		return all
	}
	cases := []struct {
		name string
		in   []byte
		want string // "" when the guard lets it pass
	}{
		{"open and data", append(syn(1), append(header(0, typeData, 0, 1, 3), "abc"...)...), ""},
		{"our parity", syn(2), "not its to open"},
		{"stream 0", syn(0), "not its to open"},
		{"version", header(1, typeData, 0, 1, 0), "version 1"},
		{"type", header(0, 9, 0, 1, 0), "type 9"},
		{"4 GiB frame", header(0, typeData, 0, 1, 1<<32-1), "window"},
		{"a full window", append(header(0, typeData, 0, 1, Window), make([]byte, Window)...), ""},
		{"few pings", bytes.Repeat(header(0, typePing, flagSYN, 0, 1), pingBurst), ""},
		{"many pings", bytes.Repeat(header(0, typePing, flagSYN, 0, 1), 200), "pings"},
		{"many streams", opens(2 * openBurst), "streams"},
		{"header look-alike in a body", append(header(0, typeData, 0, 1, headerBytes), header(7, 7, 7, 7, 7)...), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 7, 4096} { // wherever it is cut
				g := newGuard(struct {
					io.Reader
					io.Writer
					io.Closer
				}{bytes.NewReader(c.in), io.Discard, io.NopCloser(nil)}, clientParity)
				_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{g}, make([]byte, size))
				switch {
				case c.want == "" && err != nil:
					t.Errorf("cut at %d: %v", size, err)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("cut at %d: %v, want %q", size, err, c.want)
				}
			}
		})
	}
}

type countingWriter struct{ writes [][]byte }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes = append(w.writes, bytes.Clone(p))
	return len(p), nil
}

func TestGuardJoinsHeaderAndBody(t *testing.T) {
	w := &countingWriter{}
	g := &guard{dst: w}
	for _, p := range [][]byte{header(0, typeData, 0, 1, 1), []byte("k"), header(0, typeWindow, 0, 1, 9), header(0, typeData, 4, 1, 0)} {
		if n, err := g.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(w.writes) != 3 || len(w.writes[0]) != headerBytes+1 {
		t.Errorf("writes %q", w.writes)
	}
}

func TestHostilePeerEndsTheSession(t *testing.T) {
	near, far := net.Pipe()
	server, err := Server(near)
	if err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { // ends when the session closes the pipe
		defer close(drained)
		io.Copy(io.Discard, far)
	}()
	for range 100_000 {
		if _, err := far.Write(header(0, typePing, flagSYN, 0, 1)); err != nil {
			break
		}
	}
	select {
	case <-server.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the session lives on")
	}
	<-drained
	if err := server.Err(); err == nil || !strings.Contains(err.Error(), "pings") {
		t.Errorf("ended by %v", err)
	}
	server.Close()
	far.Close()
}

func TestGuardPassesErrors(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	g := newGuard(near, clientParity)
	if _, err := g.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

func FuzzGuard(f *testing.F) {
	f.Add(header(0, typeData, flagSYN, 1, 5), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		g := &guard{peer: clientParity}
		fresh := newGuard(struct {
			io.Reader
			io.Writer
			io.Closer
		}{nil, nil, io.NopCloser(nil)}, clientParity)
		whole := fresh.inspect(in)
		g.pings, g.opens = newGuard(nopConn{}, clientParity).pings, newGuard(nopConn{}, clientParity).opens
		var pieces error
		for rest := in; len(rest) > 0 && pieces == nil; {
			n := min(int(cut)+1, len(rest))
			pieces = g.inspect(rest[:n])
			rest = rest[n:]
		}
		if (whole == nil) != (pieces == nil) {
			t.Errorf("whole: %v, in pieces: %v", whole, pieces)
		}
	})
}

type nopConn struct{}

func (nopConn) Read([]byte) (int, error)    { return 0, io.EOF }
func (nopConn) Write(p []byte) (int, error) { return len(p), nil }
func (nopConn) Close() error                { return nil }
