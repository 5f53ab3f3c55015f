package quiclink

// Name is what this carrier is called.
const Name = "quic"

// Carrier implements carrier.Named.
func (l *link) Carrier() string { return Name }
