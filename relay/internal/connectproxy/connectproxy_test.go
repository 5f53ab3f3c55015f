package connectproxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// patience bounds what would hang if it failed.
const patience = time.Minute

// serve returns the agent's end of a tunnel whose connect streams go to handle.
func serve(t *testing.T, handle func(net.Conn)) *tunnel.Session {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup // the cleanup waits for it
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				handle(conn)
			})
		}
	})
	agent := join(t, listener.Addr().String(), &running)
	t.Cleanup(func() {
		listener.Close()
		agent.Close()
		running.Wait()
	})
	return agent
}

// join returns the agent's end of a tunnel that is served with address.
func join(t *testing.T, address string, running *sync.WaitGroup) *tunnel.Session {
	agent, relay := tunneltest.Pair(t)
	p := &Proxy{Address: address, Log: slog.New(slog.DiscardHandler)}
	running.Go(func() { p.Serve(relay) })
	return agent
}

func open(t *testing.T, agent *tunnel.Session) *tunnel.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, _, err := agent.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
	if err != nil {
		t.Fatal(err)
	}
	stream.SetDeadline(time.Now().Add(patience))
	return stream
}

func TestBytesBothWays(t *testing.T) {
	agent := serve(t, func(conn net.Conn) { io.Copy(conn, conn) })
	sent := make([]byte, 3<<20)
	rand.NewChaCha8([32]byte{1}).Read(sent)
	stream := open(t, agent)
	defer stream.Close()
	wrote := make(chan error, 1)
	go func() { // received below
		_, err := stream.Write(sent)
		wrote <- errors.Join(err, stream.CloseWrite())
	}()
	got, err := io.ReadAll(stream)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

// The agent has said everything, and the answer still comes.
func TestTheAgentEndsItsHalf(t *testing.T) {
	agent := serve(t, func(conn net.Conn) {
		request, err := io.ReadAll(conn)
		if err == nil {
			conn.Write(append([]byte("re: "), request...))
		}
	})
	stream := open(t, agent)
	defer stream.Close()
	if _, err := stream.Write([]byte("keys")); err != nil {
		t.Fatal(err)
	}
	stream.CloseWrite()
	if answer, err := io.ReadAll(stream); err != nil || string(answer) != "re: keys" {
		t.Errorf("%q, %v", answer, err)
	}
}

// The control plane has said everything, and still hears what the agent says.
func TestTheControlPlaneEndsItsHalf(t *testing.T) {
	heard := make(chan string, 1)
	agent := serve(t, func(conn net.Conn) {
		conn.Write([]byte("bye"))
		conn.(*net.TCPConn).CloseWrite()
		rest, _ := io.ReadAll(conn)
		heard <- string(rest)
	})
	stream := open(t, agent)
	defer stream.Close()
	if said, err := io.ReadAll(stream); err != nil || string(said) != "bye" {
		t.Fatalf("%q, %v", said, err)
	}
	if _, err := stream.Write([]byte("one thing more")); err != nil {
		t.Fatal(err)
	}
	stream.CloseWrite()
	if rest := <-heard; rest != "one thing more" {
		t.Errorf("the control plane heard %q", rest)
	}
}

func TestTheTunnelsEndIsTheConnectionsEnd(t *testing.T) {
	over := make(chan error, 1)
	agent := serve(t, func(conn net.Conn) {
		_, err := conn.Read(make([]byte, 1))
		over <- err
	})
	open(t, agent)
	agent.Close()
	if err := <-over; !errors.Is(err, io.EOF) {
		t.Errorf("the control plane's connection: %v", err)
	}
}

func TestBound(t *testing.T) {
	agent := serve(t, func(conn net.Conn) { io.Copy(conn, conn) })
	streams := make([]*tunnel.Stream, maxStreams)
	for i := range streams {
		streams[i] = open(t, agent)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _, err := agent.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
	if err == nil || protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("over the bound: %v", err)
	}
	for i, stream := range streams { // they work on
		stream.Write([]byte{byte(i)})
		echo := make([]byte, 1)
		if _, err := io.ReadFull(stream, echo); err != nil || !bytes.Equal(echo, []byte{byte(i)}) {
			t.Errorf("stream %d: %v, %v", i, echo, err)
		}
		stream.Close()
	}
}

func TestRefusals(t *testing.T) {
	var running sync.WaitGroup
	agent := join(t, "127.0.0.1:1", &running) // nobody listens there
	defer running.Wait()
	defer agent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _, err := agent.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamConnect})
	if err == nil || protocol.KindOf(err) != protocol.KindUnavailable || err.Error() != "the control plane can't be reached at the moment" {
		t.Errorf("control plane away: %v", err)
	}
	_, _, err = agent.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand})
	if err == nil || protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("another kind of stream: %v", err)
	}
}
