package quiclink

import (
	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// Stats implements carrier.Counting; the connections that joined are included.
func (l *link) Stats() carrier.Stats {
	l.mu.Lock()
	joined := l.joined
	l.mu.Unlock()
	var all carrier.Stats
	for _, conn := range append([]*quic.Conn{l.conn}, joined...) {
		s := conn.ConnectionStats()
		all.PacketsSent += s.PacketsSent
		all.PacketsReceived += s.PacketsReceived
		all.PacketsLost += s.PacketsLost
		all.BytesSent += s.BytesSent
		all.BytesReceived += s.BytesReceived
		all.BytesLost += s.BytesLost
	}
	return all
}
