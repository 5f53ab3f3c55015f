package tunnel

import (
	"time"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// PathStats count what this end of a tunnel's connection has carried so far.
type PathStats = carrier.Stats

// Stats are a tunnel's present state, and its connection's traffic so far.
type Stats struct {
	RTT     time.Duration // last round trip of a PING, 0 before the first
	Lanes   int           // open lanes
	Streams int           // open streams, in all lanes, by either end

	// Path is the connection's traffic: for WebSockets only the bytes inside TLS,
	// in memory nothing.
	Path PathStats
}

// Stats returns the tunnel's state; after its end, the last one.
func (s *Session) Stats() Stats {
	stats := Stats{RTT: s.RTT()}
	if counting, ok := s.conn.(carrier.Counting); ok {
		stats.Path = counting.Stats()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats.Path.Add(s.past)
	for _, l := range s.lanes {
		select {
		case <-l.ready:
			if l.mux != nil {
				stats.Lanes++
				stats.Streams += l.mux.Streams()
				stats.Path.Add(l.carried())
			}
		default:
		}
	}
	return stats
}
