package carrier

// Stats are what a connection has carried so far, at this end. Where the kernel
// makes the packets there are bytes alone.
type Stats struct {
	PacketsSent, PacketsReceived uint64
	PacketsLost                  uint64 // of those sent, as far as is known
	BytesSent, BytesReceived     uint64
	BytesLost                    uint64 // sent again, as far as they still mattered
}

// Counting is a Conn that counts what it carries.
type Counting interface {
	// Stats may be asked for at any time, after the connection's end as well.
	Stats() Stats
}
