package tunnel_test

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestStats: open streams and lanes show, and so do the packets of QUIC, also
// when the tunnel is over.
func TestStats(t *testing.T) {
	agent, relay := quicPair(t)
	answer(t, agent, echo)
	stream, _, err := relay.Open(within(t), protocol.LaneTerminal0, protocol.Open{Kind: protocol.StreamTerminal})
	must(t, err)
	must(t, pingPong(stream))
	s := relay.Stats()
	if s.Lanes != 1 || s.Streams != 1 {
		t.Errorf("%d lanes, %d streams", s.Lanes, s.Streams)
	}
	if s.Path.PacketsSent == 0 || s.Path.PacketsReceived == 0 || s.Path.BytesSent == 0 || s.Path.BytesReceived == 0 {
		t.Errorf("%+v", s.Path)
	}
	relay.Close()
	if over := relay.Stats(); over.Lanes != 0 || over.Streams != 0 || over.Path.PacketsSent < s.Path.PacketsSent {
		t.Errorf("after the end: %+v, before: %+v", over, s)
	}
}
