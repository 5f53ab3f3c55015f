package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func header(version, typ byte, flags uint16, stream, length uint32) []byte {
	b := []byte{version, typ}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

// A step is bytes from the peer, or a frame of ours.
type step struct {
	in  []byte
	out []byte // the header of one
}

func in(pieces ...[]byte) step { return step{in: bytes.Join(pieces, nil)} }

// feed has a fresh guard see steps, what comes in cut into pieces of size bytes.
func feed(size int, steps []step) error {
	g := newGuard(nopConn{}, clientParity)
	w := &wire{guard: g}
	for _, s := range steps {
		if s.out != nil {
			w.body = 0
			w.Write(bytes.Clone(s.out))
		}
		for rest := s.in; len(rest) > 0; {
			n := min(size, len(rest))
			if bad := g.inspect(rest[:n]); bad != nil {
				return bad
			}
			rest = rest[n:]
		}
	}
	return nil
}

func TestGuardObjects(t *testing.T) {
	syn := func(id uint32) []byte { return header(0, typeWindow, flagSYN, id, 0) }
	data := func(id uint32, n int) []byte {
		return append(header(0, typeData, 0, id, uint32(n)), make([]byte, n)...)
	}
	many := func(n int, frames func(id uint32) []byte) (all []byte) {
		for i := range n {
			all = append(all, frames(uint32(2*i+1))...)
		}
		return all
	}
	ours := func(id uint32) step { return step{out: header(0, typeWindow, flagSYN, id, 0)} }
	var unacked, rounds []step
	for i := range maxUnacked + 1 {
		unacked = append(unacked, ours(uint32(2*i+2)), step{out: header(0, typeWindow, flagFIN, uint32(2*i+2), 0)},
			in(header(0, typeWindow, flagFIN, uint32(2*i+2), 0)))
	}
	for i := range 3 * maxUnacked {
		id := uint32(2*i + 2)
		rounds = append(rounds, ours(id), in(header(0, typeWindow, flagACK, id, 0), data(id, 100), header(0, typeWindow, flagFIN, id, 0)),
			step{out: header(0, typeWindow, flagFIN, id, 0)}, in(data(id, 10)))
	}
	cases := []struct {
		name  string
		steps []step
		want  Reason // "" when the guard lets it pass
	}{
		{"open and data", []step{in(syn(1), data(1, 3))}, ""},
		{"our parity", []step{in(syn(2))}, ReasonStreamID},
		{"stream 0", []step{in(syn(0))}, ReasonStreamID},
		{"a stream that is open", []step{in(syn(1), syn(1))}, ReasonStreamID},
		{"version", []step{in(header(1, typeData, 0, 1, 0))}, ReasonMalformed},
		{"type", []step{in(header(0, 9, 0, 1, 0))}, ReasonMalformed},
		{"4 GiB frame", []step{in(header(0, typeData, 0, 1, 1<<32-1))}, ReasonFrameSize},
		{"a full window", []step{in(syn(1), data(1, Window))}, ""},
		{"few pings", []step{in(bytes.Repeat(header(0, typePing, flagSYN, 0, 1), pingBurst))}, ""},
		{"many pings", []step{in(bytes.Repeat(header(0, typePing, flagSYN, 0, 1), 200))}, ReasonPings},
		{"many answers", []step{in(bytes.Repeat(header(0, typePing, flagACK, 0, 1), 200))}, ReasonPings},
		{"many streams", []step{in(many(openBurst*3/2, syn))}, ReasonOpens},
		{"streams taken back at once", []step{in(many(openBurst, func(id uint32) []byte {
			return bytes.Join([][]byte{syn(id), header(0, typeWindow, flagRST, id, 0)}, nil)
		}), many(200, func(id uint32) []byte { return header(0, typeWindow, flagRST, id, 0) }))}, ReasonResets},
		{"header look-alike in a body", []step{in(syn(1), header(0, typeData, 0, 1, headerBytes), header(7, 7, 7, 7, 7))}, ""},
		{"two ends of a stream", []step{in(syn(1), header(0, typeData, flagFIN, 1, 0), header(0, typeWindow, flagFIN, 1, 0))}, ReasonMalformed},
		{"its own ACK", []step{in(header(0, typeWindow, flagSYN|flagACK, 1, 0))}, ReasonMalformed},
		{"two ACKs", []step{ours(2), in(header(0, typeWindow, flagACK, 2, 0), header(0, typeData, flagACK, 2, 0))}, ReasonMalformed},
		{"no ACK ever", unacked, ReasonUnacked},
		{"streams that end well", rounds, ""},
		{"a window that wraps", []step{ours(2), in(bytes.Repeat(header(0, typeWindow, 0, 2, 1<<25), 3))}, ReasonWindow},
		{"the window comes back", []step{
			ours(2), {out: header(0, typeData, 0, 2, Window)}, in(header(0, typeWindow, flagACK, 2, Window)),
		}, ""},
		{"data for no stream", []step{in(bytes.Repeat(data(9, 1<<10), 1025))}, ReasonStray},
		{"a farewell", []step{in(header(0, typeGoAway, 0, 0, 0))}, ReasonGoAway},
	}
	for _, c := range cases {
		stillTest(t, c.name, func(t *testing.T) { // or what is rationed would be given again
			for _, size := range []int{1, 7, 4096} { // wherever it is cut
				err := feed(size, c.steps)
				o, _ := errors.AsType[*Objection](err)
				switch {
				case c.want == "" && err != nil:
					t.Errorf("cut at %d: %v", size, err)
				case c.want != "" && (o == nil || o.Reason != c.want):
					t.Errorf("cut at %d: %v, want %q", size, err, c.want)
				case o != nil && protocol.KindOf(o) != protocol.KindInvalid:
					t.Errorf("the peer is told %v", protocol.KindOf(o))
				}
			}
		})
	}
}

// stillTest runs f as the test name, while the clock stands still.
func stillTest(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A peer that fills many more windows than anybody reads is shown the door.
func TestGuardBoundsWhatIsUnread(t *testing.T) {
	f := newFlows(clientParity)
	for id := uint32(1); ; id += 2 {
		f.in(frame{flags: flagSYN, stream: id})
		_, bad := f.in(frame{data: true, stream: id, length: Window})
		if held := int(id/2+1) * Window; bad != nil && (bad.Reason != ReasonUnread || held <= hardUnread) || bad == nil && held > hardUnread {
			t.Fatalf("%v with %d bytes", bad, held)
		} else if bad != nil {
			return
		}
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
	case <-time.After(time.Minute):
		t.Fatal("the session lives on")
	}
	<-drained
	if err := server.Err(); err == nil || !strings.Contains(err.Error(), "pings") {
		t.Errorf("ended by %v", err)
	}
	server.Close()
	far.Close()
}

// Who opens streams at a pace that is no flood has MaxStreams of them at most.
// Each is accepted before the next is opened: yamux resets what waits in too great
// a number, and that is open no more.
func TestGuardBoundsLiveStreams(t *testing.T) {
	near, far := net.Pipe()
	server, err := Server(near)
	must(t, err)
	defer server.Close()
	defer far.Close()
	discarded := make(chan struct{})
	go func() { // ends when the session closes the pipe
		io.Copy(io.Discard, far)
		close(discarded)
	}()
	accepted := make(chan struct{})
	go func() { // ends with the session
		defer close(accepted)
		for {
			if _, err := server.Accept(t.Context()); err != nil {
				return
			}
			accepted <- struct{}{}
		}
	}()
	pace := time.NewTicker(20 * time.Millisecond) // in which opensPerSecond allows 200
	defer pace.Stop()
	opened := 0
	for ; opened < 2*MaxStreams; opened++ {
		if opened%100 == 99 {
			<-pace.C
		}
		if _, err := far.Write(header(0, typeWindow, flagSYN, uint32(2*opened+1), 0)); err != nil {
			break
		}
		if _, ok := <-accepted; !ok {
			break
		}
	}
	far.Close()
	<-discarded
	if _, ok := <-accepted; ok {
		t.Error("one more stream than was opened")
	}
	o, ok := errors.AsType[*Objection](server.Err())
	if !ok || o.Reason != ReasonStreams || opened != MaxStreams {
		t.Errorf("ended by %v after %d streams", server.Err(), opened)
	}
}

func TestGuardPassesErrors(t *testing.T) {
	near, far := net.Pipe()
	far.Close()
	g := newGuard(near, clientParity)
	if _, err := g.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

// Whatever comes is judged the same wherever it is cut, and what is counted
// stays sound.
func FuzzGuard(f *testing.F) {
	f.Add(header(0, typeData, flagSYN, 1, 5), uint8(3))
	f.Add(append(header(0, typeWindow, flagSYN, 1, 0), header(0, typeWindow, flagRST|flagFIN, 1, 7)...), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		g, fresh := newGuard(nopConn{}, clientParity), newGuard(nopConn{}, clientParity)
		whole := fresh.inspect(in)
		var pieces *Objection
		for rest := in; len(rest) > 0 && pieces == nil; {
			n := min(int(cut)+1, len(rest))
			pieces = g.inspect(rest[:n])
			rest = rest[n:]
		}
		if (whole == nil) != (pieces == nil) {
			t.Errorf("whole: %v, in pieces: %v", whole, pieces)
		}
		unread := 0
		for _, one := range g.flows.open {
			unread += one.unread
		}
		if g.flows.unread < unread || g.flows.stray < -Window-frameCost || g.flows.unacked != 0 {
			t.Errorf("%d unread, of them %d in open streams, %d stray, %d unacked",
				g.flows.unread, unread, g.flows.stray, g.flows.unacked)
		}
	})
}

type nopConn struct{}

func (nopConn) Read([]byte) (int, error)    { return 0, io.EOF }
func (nopConn) Write(p []byte) (int, error) { return len(p), nil }
func (nopConn) Close() error                { return nil }
