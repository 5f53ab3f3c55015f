package tunnel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/mux"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A stuckConn is a carrier whose lanes take nothing while it is stuck; its
// control stream goes on.
type stuckConn struct {
	*tunneltest.Conn
	stuck atomic.Bool
	again chan struct{} // closed when it goes on for good
	first sync.Once
}

func (c *stuckConn) Accept(ctx context.Context) (carrier.Stream, error) {
	s, err := c.Conn.Accept(ctx)
	control := false
	c.first.Do(func() { control = true })
	if err != nil || control {
		return s, err
	}
	return &stuckStream{s, c}, nil
}

type stuckStream struct {
	carrier.Stream
	conn *stuckConn
}

func (s *stuckStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if s.conn.stuck.Load() {
		<-s.conn.again
	}
	return n, err
}

// A tunnel whose lane takes nothing ends, since nobody can know what of it still
// arrives; who goes on by offset on the next one loses and repeats nothing.
func TestCase09WriteTimeout(t *testing.T) {
	tunnel.Impatient(t, noStall, noStall, time.Second) // much longer than any of it takes
	data := make([]byte, 8<<20)
	for i := range len(data) / 8 {
		binary.BigEndian.PutUint64(data[8*i:], uint64(i))
	}
	var got []byte
	for range 3 { // times that the lane is stuck in the middle
		got = append(got, part(t, data, len(got), true)...)
	}
	if len(got) >= len(data) {
		t.Fatal("it was never stuck")
	}
	tunnel.Impatient(t, noStall, noStall, time.Minute) // the rest may take its time
	got = append(got, part(t, data, len(got), false)...)
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d, and not each once", len(got), len(data))
	}
}

// part has an agent send data from an offset over a tunnel of its own, which
// gets stuck in between if it shall, and returns what arrives of it.
func part(t *testing.T, data []byte, from int, sticks bool) []byte {
	t.Helper()
	near, far := tunneltest.Conns()
	conn := &stuckConn{Conn: far, again: make(chan struct{})}
	agent, relay := register(t, near, conn, nil)
	failed := make(chan error, 1)
	answer(t, agent, func(in *tunnel.Incoming, s *tunnel.Stream) {
		at, _ := strconv.Atoi(in.Open.Grant)
		_, err := s.Write(data[at:])
		s.CloseWrite()
		failed <- err
	})
	stream, _, err := relay.Open(within(t), protocol.LaneTerminal0,
		protocol.Open{Kind: protocol.StreamTerminal, Grant: strconv.Itoa(from)})
	must(t, err)
	if !sticks {
		rest, err := io.ReadAll(stream)
		must(t, err)
		return rest
	}
	got := make([]byte, 300<<10) // the writer hasn't written all of it then
	_, err = io.ReadFull(stream, got)
	must(t, err)
	conn.stuck.Store(true)
	rest := make(chan []byte)
	go func() { // received below
		more, err := io.ReadAll(stream)
		if err == nil {
			t.Error("what broke off reads as whole")
		}
		rest <- more
	}()
	if err := <-failed; !errors.Is(err, mux.ErrStuck) {
		t.Errorf("the writer got %v", err)
	}
	<-agent.Done()
	close(conn.again)
	return append(got, <-rest...)
}
