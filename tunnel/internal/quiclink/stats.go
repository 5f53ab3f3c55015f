package quiclink

import (
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// Stats implements carrier.Counting; the connections that joined are included.
func (l *link) Stats() carrier.Stats {
	l.mu.Lock()
	joined := append(append([]*quic.Conn{l.conn}, l.joined...), l.ended...)
	l.mu.Unlock()
	var all carrier.Stats
	for _, conn := range joined {
		s := conn.ConnectionStats()
		all.Add(carrier.Stats{
			PacketsSent: s.PacketsSent, PacketsReceived: s.PacketsReceived, PacketsLost: s.PacketsLost,
			BytesSent: s.BytesSent, BytesReceived: s.BytesReceived, BytesLost: s.BytesLost,
		})
	}
	return all
}

// Trip implements carrier.Timed.
func (l *link) Trip() time.Duration { return l.conn.ConnectionStats().MinRTT }
