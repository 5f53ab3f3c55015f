package screen

// appendUnfinished appends the beginning of a sequence that was let out, or
// one that is as good.
func (s *Screen) appendUnfinished(dst []byte) []byte {
	if s.maybe {
		if s.escaped {
			dst = append(dst, esc)
		}
		return dst
	}
	switch s.state {
	case escape:
		dst = append(dst, esc)
	case escapeIntermediate:
		dst = append(append(dst, esc), s.collect[:s.nCollect]...)
	case csiEntry, csiParam, csiIntermediate:
		dst = append(dst, "\x1b["...)
		dst = s.appendSequence(dst, s.state == csiEntry)
	case csiIgnore:
		dst = append(dst, "\x1b[0<"...)
	case ignoredString:
		dst = append(dst, "\x1b_"...)
	case oscString:
		dst = append(append(dst, "\x1b]"...), s.str...)
		if s.strLong {
			dst = append(dst, 'x') // as good as what was forgotten
		}
	case dcsEntry, dcsParam, dcsIntermediate:
		dst = append(dst, "\x1bP"...)
		dst = s.appendSequence(dst, s.state == dcsEntry)
	case dcsIgnore:
		dst = append(dst, "\x1bP0<"...)
	case dcsString:
		dst = append(dst, "\x1bPx"...) // viewers obey none
	}
	return dst
}

// appendSequence appends private marker, parameters and intermediate characters.
func (q *sequence) appendSequence(dst []byte, none bool) []byte {
	if none {
		return dst
	}
	collected := q.collect[:q.nCollect]
	if len(collected) > 0 && collected[0] >= '<' {
		dst = append(dst, collected[0])
		collected = collected[1:]
	}
	return append(q.params.append(dst), collected...)
}
