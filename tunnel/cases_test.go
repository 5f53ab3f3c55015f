package tunnel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// The cases of the battery of threats that are the tunnel's; README.md says
// which test is whose.

// frameHeader returns the header of a frame of yamux.
func frameHeader(typ byte, flags uint16, stream, length uint32) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, typ}, flags)
	b = binary.BigEndian.AppendUint32(b, stream)
	return binary.BigEndian.AppendUint32(b, length)
}

// The frame types and flags of yamux that the tests use.
const (
	typeData, typeWindow, typePing     = 0, 1, 2
	flagSYN, flagACK, flagFIN, flagRST = 1, 2, 4, 8
)

// overrun writes frames to a lane until the relay has enough, and checks that the
// tunnel ends for it. It returns how many went out, which is more than the relay
// read by what the path holds, and the most goroutines there were meanwhile
// beyond those before.
func overrun(t *testing.T, relay *tunnel.Session, lane carrier.Stream, frames int, frame func(i int) []byte) (taken, goroutines int) {
	t.Helper()
	before := runtime.NumGoroutine()
	go io.Copy(io.Discard, lane) // ends with the tunnel
	for taken < frames {
		if _, err := lane.Write(frame(taken)); err != nil {
			break
		}
		if taken++; taken%64 == 0 {
			goroutines = max(goroutines, runtime.NumGoroutine()-before)
		}
	}
	ends(t, relay)
	return taken, goroutines
}

// ends waits for the end of a tunnel whose peer broke a rule.
func ends(t *testing.T, s *tunnel.Session) {
	t.Helper()
	select {
	case <-s.Done():
	case <-within(t).Done():
		t.Fatal("the tunnel lives on")
	}
	if _, ok := errors.AsType[*mux.Objection](s.Err()); !ok || protocol.KindOf(s.Err()) != protocol.KindInvalid {
		t.Errorf("ended with %v", s.Err())
	}
}

// Connections that finish TLS and then say nothing make room for an agent that
// says HELLO, also when they come from its own address.
func TestCase01SilentConnections(t *testing.T) {
	listener, pool := listen(t, nil)
	for range 300 { // more than may wait
		conn, err := quiclink.Dial(within(t), listener.Addr().String(), &tls.Config{RootCAs: pool})
		must(t, err)
		defer conn.Close(protocol.Errorf(protocol.KindUnavailable, "done"))
	}
	began := time.Now()
	agent, err := dial(t, listener, pool)
	must(t, err)
	defer agent.Close()
	t.Logf("%v", time.Since(began)) // 1 s at most, on a machine with nothing else to do
	if took := time.Since(began); took >= protocol.HandshakeTimeout {
		t.Errorf("it took %v: until the silent ones had to go", took)
	}
}

// Connections for WebSockets that say nothing at all make room, too.
func TestCase01SilentTCP(t *testing.T) {
	_, cfg := listenBoth(t, nil)
	for range 400 { // more than may wait
		conn, err := net.Dial("tcp", cfg.Addr)
		must(t, err)
		defer conn.Close()
	}
	began := time.Now()
	agent, err := tunnel.Dial(within(t), by(cfg, onlyWebSocket))
	must(t, err)
	defer agent.Close()
	t.Logf("%v", time.Since(began)) // 1 s at most, on a machine with nothing else to do
	if took := time.Since(began); took >= protocol.HandshakeTimeout {
		t.Errorf("it took %v: until the silent ones had to go", took)
	}
}

// conns are connections that come to a Listener.
type conns chan carrier.Conn

func (c conns) Accept(ctx context.Context) (carrier.Conn, error) {
	select {
	case conn := <-c:
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A Listener ends a connection whose HELLO doesn't come, wherever the agent
// stops, after HandshakeTimeout.
func TestCase02ListenerDoesNotWait(t *testing.T) {
	preface := protocol.AppendPreface(nil, protocol.Preface{Version: 1, Lane: protocol.ControlStream})
	for name, sent := range map[string][]byte{
		"no stream": nil, "an empty stream": {}, "half a preface": preface[:3], "no HELLO": preface,
		"half a HELLO": append(bytes.Clone(preface), byte(protocol.Hello{}.FrameType()), 0),
	} {
		synctest.Test(t, func(t *testing.T) {
			came := make(conns)
			listener := tunnel.ListenTo(came, tunnel.ListenConfig{RelayID: tunneltest.RelayID})
			defer listener.Close()
			near, far := tunneltest.Conns()
			if sent != nil {
				stream, err := near.Open(t.Context())
				must(t, err)
				go stream.Write(sent)
				go io.Copy(io.Discard, stream)
			}
			began := time.Now()
			came <- far
			<-near.Done()
			if took := time.Since(began); took != protocol.HandshakeTimeout {
				t.Errorf("%s: ended after %v: %v", name, took, near.Err())
			}
		})
	}
}

// Few pings of a flood are answered.
func TestCase03PingFlood(t *testing.T) {
	conn, relay := handmadeAgent(t)
	const flood = 200_000
	taken, goroutines := overrun(t, relay, openLane(t, conn), flood, func(i int) []byte {
		return frameHeader(typePing, flagSYN, 0, uint32(i))
	})
	if taken == flood || goroutines > 64+20 {
		t.Errorf("%d pings taken, with %d goroutines", taken, goroutines)
	}
}

// A flood of streams keeps few alive, also when each is taken back at once.
func TestCase04StreamFlood(t *testing.T) {
	for name, frames := range map[string]func(i int) []byte{
		"kept": func(i int) []byte { return frameHeader(typeWindow, flagSYN, uint32(2*i+1), 0) },
		"taken back": func(i int) []byte {
			return append(frameHeader(typeWindow, flagSYN, uint32(2*i+1), 0), frameHeader(typeWindow, flagRST, uint32(2*i+1), 0)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, relay := handmadeAgent(t)
			const flood = 200_000
			taken, goroutines := overrun(t, relay, openLane(t, conn), flood, frames)
			if taken == flood || goroutines > 1000+300 {
				t.Errorf("%d streams taken, with %d goroutines", taken, goroutines)
			}
		})
	}
}

// A stream of the relay's can't be taken over by opening it again.
func TestCase05OpensTheRelaysStream(t *testing.T) {
	conn, relay := handmadeAgent(t)
	lane := openLane(t, conn)
	opened := make(chan *tunnel.Stream, 1)
	go func() { // received below
		s, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
		if err == nil {
			opened <- s
		}
		close(opened)
	}()
	// Stream 2 is the relay's first. Its SYN and OPEN are read, and answered.
	header := bytes.Repeat([]byte{0xff}, 12)
	for header[1] != typeData {
		_, err := io.ReadFull(lane, header)
		must(t, err)
	}
	_, err := io.CopyN(io.Discard, lane, int64(binary.BigEndian.Uint32(header[8:])))
	must(t, err)
	go io.Copy(io.Discard, lane) // ends with the tunnel
	answer, err := protocol.Append(nil, protocol.Opened{})
	must(t, err)
	_, err = lane.Write(append(frameHeader(typeData, flagACK, 2, uint32(len(answer))), answer...))
	must(t, err)
	stream := <-opened
	if stream == nil {
		t.Fatal("not opened")
	}
	lane.Write(frameHeader(typeWindow, flagSYN, 2, 0))
	lane.Write(append(frameHeader(typeData, 0, 2, 4), "evil"...))
	ends(t, relay)
	if n, err := stream.Read(make([]byte, 4)); n > 0 || err == nil || err == io.EOF {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// A frame of 4 GiB ends the tunnel by its header, whatever its stream is.
func TestCase06HugeFrame(t *testing.T) {
	for _, stream := range []uint32{1, 2, 4_000_001} {
		conn, relay := handmadeAgent(t)
		lane := openLane(t, conn)
		began := time.Now()
		_, err := lane.Write(frameHeader(typeData, 0, stream, 1<<32-1))
		must(t, err)
		ends(t, relay)
		if took := time.Since(began); took > 5*time.Second { // nobody waited for what it announced
			t.Errorf("stream %d: it took %v", stream, took)
		}
	}
}

// A frame of ours that is too large, empty or cut off ends its stream alone.
func TestCase07BadFrameEndsItsStream(t *testing.T) {
	conn, relay := handmadeAgent(t)
	go answerRaw(relay)
	m, err := mux.Client(openLane(t, conn))
	must(t, err)
	defer m.Close()
	open, err := protocol.Append(nil, protocol.Open{Kind: protocol.StreamConnect})
	must(t, err)
	good, err := protocol.Append(nil, protocol.Ping{ID: 1})
	must(t, err)
	huge := append([]byte{byte(protocol.Ping{}.FrameType())}, binary.BigEndian.AppendUint32(nil, 1<<20+1)...)
	empty := []byte{byte(protocol.Open{}.FrameType()), 0, 0, 0, 0}
	for name, sent := range map[string][]byte{
		"first is huge":     huge,
		"first is empty":    empty,
		"first is cut off":  open[:len(open)-1],
		"first is no OPEN":  good,
		"second is huge":    append(bytes.Clone(open), huge...),
		"second is empty":   append(bytes.Clone(open), empty...),
		"second is cut off": append(bytes.Clone(open), good[:9]...),
	} {
		bad, err := m.Open()
		must(t, err)
		_, err = bad.Write(sent)
		must(t, err)
		if bytes.HasSuffix(sent, open[:len(open)-1]) || bytes.HasSuffix(sent, good[:9]) {
			must(t, bad.CloseWrite()) // or more would be waited for
		}
		bad.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, bad); errors.Is(err, context.DeadlineExceeded) || err != nil && err.Error() == "i/o deadline reached" {
			t.Errorf("%s: the stream lives on", name)
		}
		bad.Close()
		if relay.Err() != nil {
			t.Fatalf("%s: the tunnel ended: %v", name, relay.Err())
		}
	}
	well, err := m.Open()
	must(t, err)
	_, err = well.Write(append(bytes.Clone(open), good...))
	must(t, err)
	protocol.ReadFrame(well) // OPENED
	well.SetReadDeadline(time.Now().Add(time.Minute))
	if frame, err := protocol.ReadFrame(well); err != nil || frame.Type != (protocol.Pong{}).FrameType() {
		t.Errorf("a good stream: %v, %v", frame.Type, err)
	}
}

// answerRaw accepts streams of s and answers each PING on them, until something
// else comes.
func answerRaw(s *tunnel.Session) {
	for {
		in, err := s.Accept(context.Background())
		if err != nil {
			return
		}
		go func() { // ends with the stream
			stream, err := in.Accept(protocol.Opened{})
			if err != nil {
				return
			}
			defer stream.Close()
			frames := protocol.NewFrameReader(stream)
			for {
				frame, err := frames.Next()
				if err != nil {
					stream.Reset()
					return
				}
				m, err := protocol.Decode(frame)
				ping, ok := m.(protocol.Ping)
				if err != nil || !ok || protocol.Write(stream, protocol.Pong(ping)) != nil {
					stream.Reset()
					return
				}
			}
		}()
	}
}

// Streams that never say OPEN are few; the rest is reset, and the tunnel lives.
func TestStreamsWithoutOPEN(t *testing.T) {
	conn, relay := handmadeAgent(t)
	m, err := mux.Client(openLane(t, conn))
	must(t, err)
	defer m.Close()
	const most, more = 256, 100
	reset := make(chan bool, most+more)
	for range most + more {
		s, err := m.Open()
		must(t, err)
		go func() { // ends with the stream
			_, err := s.Read(make([]byte, 1))
			reset <- errors.Is(err, yamux.ErrConnectionReset)
		}()
	}
	for n := range more {
		select {
		case ok := <-reset:
			if !ok {
				t.Fatal("a stream ended in another way")
			}
		case <-within(t).Done():
			t.Fatalf("%d were reset", n)
		}
	}
	select {
	case <-reset:
		t.Error("more were reset")
	default:
	}
	if relay.Err() != nil {
		t.Error(relay.Err())
	}
}

// A window that the peer opens beyond all bounds, and data for streams that
// never were, end the tunnel.
func TestFloodsThatTheCasesDoNotName(t *testing.T) {
	kilobyte := append(frameHeader(typeData, 0, 99, 1<<10), make([]byte, 1<<10)...)
	for name, frame := range map[string]func(i int) []byte{
		"window": func(i int) []byte {
			if i == 0 {
				return frameHeader(typeWindow, flagSYN, 1, 0)
			}
			return frameHeader(typeWindow, 0, 1, 1<<30)
		},
		"two ends": func(i int) []byte {
			if i == 0 {
				return frameHeader(typeWindow, flagSYN, 1, 0)
			}
			return frameHeader(typeWindow, flagFIN, 1, 0)
		},
		"resets":     func(i int) []byte { return frameHeader(typeWindow, flagRST, 7, 0) },
		"stray data": func(int) []byte { return kilobyte },
		"answers":    func(int) []byte { return frameHeader(typePing, flagACK, 0, 1) },
		"farewell":   func(int) []byte { return frameHeader(3, 0, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, relay := handmadeAgent(t)
			const flood = 100_000
			if taken, goroutines := overrun(t, relay, openLane(t, conn), flood, frame); taken == flood || goroutines > 50 {
				t.Errorf("%d frames taken, with %d goroutines", taken, goroutines)
			}
		})
	}
}
