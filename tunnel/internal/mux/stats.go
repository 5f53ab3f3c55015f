package mux

// Streams returns how many streams are open, by either end.
func (s *Session) Streams() int { return s.yamux.NumStreams() }
