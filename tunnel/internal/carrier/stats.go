package carrier

// Stats are the packets of a connection so far, at this end.
type Stats struct {
	PacketsSent, PacketsReceived uint64
	PacketsLost                  uint64 // of those sent, as far as is known
	BytesSent, BytesReceived     uint64
	BytesLost                    uint64 // sent again, as far as they still mattered
}

// Counting is a Conn that counts its packets.
type Counting interface {
	// Stats may be asked for at any time, after the connection's end as well.
	Stats() Stats
}
