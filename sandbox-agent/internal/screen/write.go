package screen

// Write advances the screen over p, the program's output. It appends to out
// what viewers are to see, which is p without the queries that are answered or
// suppressed here, and to answers what goes back to the program.
//
// It holds back the beginning of what may still become such a query, at most
// 256 bytes, and of a character. These come first at a later call or in
// [Screen.Flush]. The state of the screen is always that of exactly the bytes
// in out so far.
func (s *Screen) Write(out, answers, p []byte) (o, a []byte) {
	if len(s.part) > 0 {
		s.joined = append(append(s.joined[:0], s.part...), p...)
		p, s.part = s.joined, s.part[:0]
	}
	s.in, s.out, s.answers = p, out, answers
	s.kept, s.maybeAt = 0, 0
	for i := 0; i < len(p); {
		n := 0
		if s.state == ground {
			n = s.ground(i)
		} else {
			n = s.inSequence(i)
		}
		if n == 0 {
			s.part = append(s.part, p[i:]...)
			p = p[:i]
		}
		i += n
	}
	s.endWrite(p)
	out, answers = s.out, s.answers
	s.in, s.out, s.answers = nil, nil, nil
	return out, answers
}

// Flush appends to out what was held back: the output has ended.
func (s *Screen) Flush(out []byte) []byte {
	out = append(append(out, s.held...), s.part...)
	s.held, s.part = s.held[:0], s.part[:0]
	s.maybe = false
	return out
}
