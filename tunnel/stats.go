package tunnel

import (
	"time"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// PathStats are what a tunnel's connection has carried so far, at this end.
type PathStats = carrier.Stats

// Stats are what a tunnel carries at the moment, and what its connection has
// carried so far.
type Stats struct {
	RTT     time.Duration // the last round trip of a PING, 0 before the first
	Lanes   int           // that are open
	Streams int           // that are open, in all lanes and by either end

	// Path is what is known of the connection below: of WebSockets the bytes
	// inside TLS alone, in memory nothing.
	Path PathStats
}

// Stats returns what the tunnel does. After its end that is what it had done.
func (s *Session) Stats() Stats {
	stats := Stats{RTT: s.RTT()}
	s.mu.Lock()
	for _, l := range s.lanes {
		select {
		case <-l.ready:
			if l.mux != nil {
				stats.Lanes++
				stats.Streams += l.mux.Streams()
			}
		default:
		}
	}
	s.mu.Unlock()
	if counting, ok := s.conn.(carrier.Counting); ok {
		stats.Path = counting.Stats()
	}
	return stats
}
