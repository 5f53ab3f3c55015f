package screen

const (
	minCols, minRows = 2, 1 // xterm.js has no terminal of one column
	maxSide          = 1000

	// maxHeld bounds the bytes held back because they may become a query.
	maxHeld = 256
	// maxString is how much of an OSC is looked at. A longer one has no effect.
	maxString = 64 << 10
)

// A Screen is the grid of one terminal. It is not safe for concurrent use.
type Screen struct {
	// Static after construction.
	normal, alt *buffer

	// The grid.
	buf      *buffer // normal or alt
	pen      pen
	penCell  cell // an empty cell of the pen
	modes    modes
	charsets charsets
	title    string
	colors   colors
	links    linkTable
	exts     extTable
	clusters clusterTable

	// The parser.
	state    state
	params   params
	collect  [4]byte // private marker and intermediate characters
	nCollect int
	final    byte   // of a DCS
	str      []byte // of an OSC, or of a DCS that may be a query
	strLong  bool   // str is longer than can be kept
	join     joint
	inRun    bool // the byte before was printed

	// What rows may read otherwise than the output did, see mask.go.
	tangled    bool
	wasTangled bool        // and perhaps no more
	returned   bool        // the cursor went back to the first column, and nothing more yet
	newRows    int         // rows above the screen in what AppendNewText returned last
	places     []textPlace // room for MaskAsIn

	// Bytes not yet let out.
	part      []byte // the beginning of a character, not parsed
	held      []byte // the beginning of what may be a query, parsed
	maybe     bool   // the sequence being parsed may be a query
	escaped   bool   // and the ESC it begins with was let out
	closing   bool   // it may be the ST of a query
	broken    bool   // it comes amid a character
	maybeSize int    // bytes of it before those of in

	// Owned by Write.
	in           []byte
	kept         int // bytes of in that are dealt with
	maybeAt      int // where in in the possible query begins
	out, answers []byte
	joined       []byte // part and what follows it
}

// New returns an empty screen. Sizes that no viewer can have are clamped, to
// [2, 1000] columns and [1, 1000] rows.
func New(cols, rows int) *Screen {
	cols, rows = clampSize(cols, rows)
	s := &Screen{
		normal: newBuffer(cols, rows, viewerScrollback),
		alt:    newBuffer(cols, rows, 0),
		modes:  initialModes,
	}
	s.normal.fillRows(cell{})
	s.buf = s.normal
	s.params.reset()
	return s
}

func clampSize(cols, rows int) (c, r int) {
	return min(max(cols, minCols), maxSide), min(max(rows, minRows), maxSide)
}

// Size returns the size in cells.
func (s *Screen) Size() (cols, rows int) { return s.buf.cols, s.buf.rows }

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
			n = s.sequence(i)
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

// endWrite lets out what is not to be held of p, which was parsed.
func (s *Screen) endWrite(p []byte) {
	if !s.maybe {
		s.out = append(s.out, p[s.kept:]...)
		return
	}
	s.out = append(s.out, p[s.kept:s.maybeAt]...)
	s.held = append(s.held, p[s.maybeAt:]...)
	s.maybeSize = len(s.held)
}

// Flush appends to out what was held back: the output has ended.
func (s *Screen) Flush(out []byte) []byte {
	out = append(append(out, s.held...), s.part...)
	s.held, s.part = s.held[:0], s.part[:0]
	s.maybe = false
	return out
}

// suspect begins a sequence, at in[i], that may turn out a query.
func (s *Screen) suspect(i int, escaped bool) {
	s.maybe, s.maybeAt, s.escaped, s.closing = true, i, escaped, false
	s.broken = breaksCharacter(s.in[:i])
	s.maybeSize = -i
}

// clearUp says that the sequence being parsed is no query, and lets it out.
func (s *Screen) clearUp() {
	if !s.maybe {
		return
	}
	s.maybe = false
	s.out = append(s.out, s.held...)
	s.held = s.held[:0]
}

// remove takes the sequence being parsed, a query that ends at in[end], out of
// the output. What viewers have seen of it they see end, without an effect.
func (s *Screen) remove(end int) {
	s.cut(end)
	switch {
	case s.escaped:
		s.out = append(s.out, '\\')
		s.join, s.inRun = 0, false
	case s.broken:
		s.separate()
	}
}

// cut takes the sequence being parsed, which ends at in[end], out of the output
// but for what has been let out.
func (s *Screen) cut(end int) {
	if len(s.held) == 0 {
		s.out = append(s.out, s.in[s.kept:s.maybeAt]...)
	}
	s.maybe = false
	s.held = s.held[:0]
	s.kept = end
}

// separate keeps what comes next from ending the character that was begun
// before what viewers don't see.
func (s *Screen) separate() {
	s.out = append(s.out, 0)
	s.join, s.inRun = 0, false
}

// replace takes the sequence being parsed, which ends at in[end], out of the
// output, with another one for viewers to see instead. If it has been let out
// but for its final it has no effect once another begins.
func (s *Screen) replace(end int, with []byte) {
	if !s.maybe {
		s.out = append(append(s.out, s.in[s.kept:end-1]...), with...)
		s.kept = end
		return
	}
	s.cut(end)
	if s.escaped {
		with = with[1:] // its ESC has been let out
	}
	s.out = append(s.out, with...)
}
