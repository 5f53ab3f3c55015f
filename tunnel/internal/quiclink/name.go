package quiclink

// Name is this carrier's name.
const Name = "quic"

// Carrier implements carrier.Named.
func (l *link) Carrier() string { return Name }
