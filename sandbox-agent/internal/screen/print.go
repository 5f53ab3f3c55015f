package screen

// printASCII prints the run of printable ASCII at in[i] and returns its
// length.
func (s *Screen) printASCII(i int) int {
	if s.charsets.current != charsetASCII || s.modes.insert || s.join.class() == classPrepend {
		return s.printSlowly(i)
	}
	s.beginRun()
	b, p := s.buf, s.in[i:]
	blank, n := s.penCell, 0
	for {
		if b.x >= b.cols {
			if s.modes.wraparound {
				s.wrap(0)
			} else {
				b.x = b.cols - 1
			}
		}
		cells := b.line(b.y).cells[b.x:b.cols]
		src := p[n:]
		if len(src) > len(cells) {
			src = src[:len(cells)]
		}
		k := 0
		for ; k < len(src); k++ {
			c := src[k]
			if c-' ' >= del-' ' {
				break
			}
			cells[k] = cell{content: uint32(c) | narrow, fg: blank.fg, bg: blank.bg, ext: blank.ext}
		}
		b.x += k
		n += k
		if n == len(p) || p[n]-' ' >= del-' ' {
			break
		}
	}
	s.join = plainJoint
	s.endRun()
	return n
}

// printSlowly is printASCII where something special is on.
func (s *Screen) printSlowly(i int) int {
	s.beginRun()
	n := 0
	for _, c := range s.in[i:] {
		if c-' ' >= del-' ' {
			break
		}
		r := rune(c)
		if s.charsets.current != charsetASCII {
			r = s.charsets.current.translate(c)
		}
		s.print(r)
		n++
	}
	s.endRun()
	return n
}

// printText prints the run of characters beyond ASCII at in[i] and returns its
// length in bytes. A C1 control or a mistake ends it.
func (s *Screen) printText(i int) int {
	p, n := s.in[i:], 0
	for n < len(p) && p[n] >= 0x80 {
		r, size := decode(p[n:])
		if r < 0xa0 {
			if n > 0 {
				break
			}
			if r > 0 {
				s.control(r, i, size)
			}
			return size
		}
		if n == 0 {
			s.beginRun()
		}
		s.print(r)
		n += size
	}
	s.endRun()
	return n
}

// beginRun is for what comes before the first of a run of characters: a wide
// character goes when its right half is about to be overwritten.
func (s *Screen) beginRun() {
	if s.inRun {
		return
	}
	s.inRun = true
	if b := s.buf; b.x > 0 {
		b.line(b.y).halve(b.x-1, s.penCell)
	}
}

// endRun is for what comes after: what is left of a wide character goes when
// its left half was overwritten.
func (s *Screen) endRun() {
	b := s.buf
	if b.x >= b.cols {
		return
	}
	if c := &b.line(b.y).cells[b.x]; c.isSecond() {
		*c = s.penCell
	}
}

// print puts one character where the cursor is.
func (s *Screen) print(r rune) {
	b := s.buf
	before := s.join
	next, joins := before.follow(r)
	s.join = next
	width, old := next.width(), 0
	if joins {
		old = before.width()
	}
	if b.x+width-old > b.cols {
		if s.modes.wraparound {
			s.wrap(old)
		} else if b.x = b.cols - 1; width == 2 {
			return
		}
	}
	cells := b.line(b.y).cells
	if joins && b.x > 0 {
		s.addToCell(b.line(b.y), b.x, r, width)
		for range width - old {
			cells[b.x] = s.penCell
			cells[b.x].content = second
			b.x++
		}
		return
	}
	if s.modes.insert {
		l := b.line(b.y)
		l.insert(b.x, width-old, s.penCell)
		l.halve(b.cols-1, s.penCell)
	}
	c := s.penCell
	c.content = uint32(r) | uint32(width^1)<<widthShift
	cells[b.x] = c
	b.x++
	if width == 2 {
		c.content = second
		cells[b.x] = c
		b.x++
	}
}

// addToCell joins r to the character before column x.
func (s *Screen) addToCell(l *row, x int, r rune, width int) {
	i := x - 1
	if l.cells[i].width() == 0 {
		i--
	}
	if i < 0 {
		return
	}
	c := &l.cells[i]
	if c.empty() {
		c.content = uint32(r)
	} else {
		c.content = s.joinCluster(c.content, r)
		if c.content&clusterBit != 0 {
			l.noteCluster(i, c.content&codeMask)
		}
	}
	c.content = c.content&contentMask | uint32(width^1)<<widthShift
}

// wrap goes to the beginning of the next row, which continues this one. The
// last old cells go with it: a character that has become too wide.
func (s *Screen) wrap(old int) {
	b := s.buf
	from := *b.line(b.y)
	x := b.x - old
	b.x = old
	if b.y == b.bottom {
		b.scroll(s.eraseCell(), true)
	} else {
		b.y = min(b.y+1, b.rows-1)
		b.line(b.y).wrapped = true
	}
	if x < 0 {
		return
	}
	copyCells(b.line(b.y), 0, &from, x, old)
	for ; x < b.cols; x++ {
		from.cells[x] = s.penCell
	}
}

// eraseCell returns an empty cell of the pen's background.
func (s *Screen) eraseCell() cell { return cell{bg: s.pen.bg & (modeMask | colorMask)} }

// repeat prints the last character n more times.
func (s *Screen) repeat(n int) {
	b := s.buf
	x := b.x - s.join.width()
	if s.join == 0 || x < 0 || x >= b.cols {
		return
	}
	var text []rune
	text = s.appendRunes(text, b.line(b.y).cells[x].content)
	s.inRun = false
	if len(text) == 0 {
		return
	}
	s.beginRun()
	for range n {
		for _, r := range text {
			if r < del && s.charsets.current != charsetASCII {
				r = s.charsets.current.translate(byte(r))
			}
			s.print(r)
		}
	}
	s.endRun()
	s.inRun = false
}
