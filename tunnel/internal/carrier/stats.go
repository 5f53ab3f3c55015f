package carrier

// Stats count what this end of a connection has carried so far. If the kernel
// makes the packets, only bytes are counted.
type Stats struct {
	PacketsSent, PacketsReceived uint64
	PacketsLost                  uint64 // of those sent, as far as known
	BytesSent, BytesReceived     uint64
	BytesLost                    uint64 // sent again, as far as still needed
}

// Add adds what other connections have carried.
func (s *Stats) Add(more Stats) {
	s.PacketsSent += more.PacketsSent
	s.PacketsReceived += more.PacketsReceived
	s.PacketsLost += more.PacketsLost
	s.BytesSent += more.BytesSent
	s.BytesReceived += more.BytesReceived
	s.BytesLost += more.BytesLost
}

// Counting is a Conn that counts what it carries.
type Counting interface {
	// Stats may be called at any time, even after the end.
	Stats() Stats
}
