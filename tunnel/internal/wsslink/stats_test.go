package wsslink

import (
	"io"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// What one end counts as sent the other one counts as received, over all sockets
// and also when some or all of them are closed.
func TestStats(t *testing.T) {
	const size = 100_000
	w := newWorld(t)
	agent, relay, near, far := w.pair(t)
	join(agent, relay)
	near2, err := agent.Open(within(t))
	must(t, err)
	far2, err := relay.Accept(within(t))
	must(t, err)
	stats := func(conn carrier.Conn) carrier.Stats { return conn.(carrier.Counting).Stats() }
	before, dialled := stats(relay), stats(agent)
	for _, s := range [][2]carrier.Stream{{near, far}, {near2, far2}} {
		written := make(chan error, 1)
		go func() { // awaited below
			_, err := s[0].Write(make([]byte, size))
			written <- err
		}()
		_, err := io.ReadFull(s[1], make([]byte, size))
		must(t, err)
		must(t, <-written)
	}
	const frames = 1000 // bytes of their headers, and of a handshake's request that may be counted late
	got := stats(relay).BytesReceived - before.BytesReceived
	sent := stats(agent).BytesSent - dialled.BytesSent
	if got < 2*size || got > 2*size+frames || sent < got || sent > got+frames {
		t.Errorf("%d bytes were sent and %d received, of %d", sent, got, 2*size)
	}
	if s := stats(relay); s.PacketsSent != 0 || s.PacketsReceived != 0 || s.BytesLost != 0 {
		t.Errorf("%+v", s)
	}
	last := stats(relay).BytesReceived
	must(t, near2.Close())
	if _, err := far2.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a closed stream: %v", err)
	}
	agent.Close(protocol.Errorf(protocol.KindUnavailable, "done"))
	over(t, relay)
	if s := stats(relay); s.BytesReceived < last {
		t.Errorf("%d bytes after the end, %d before", s.BytesReceived, last)
	}
}
