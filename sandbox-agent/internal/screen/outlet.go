package screen

// maxHeld bounds the bytes held back because they may become a query.
const maxHeld = 256

// An outlet lets out what viewers see of the output: all but the queries that
// are answered or suppressed. It holds back the beginning of what may become
// one.
type outlet struct {
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

// endWrite lets out what is not to be held of p, which was parsed.
func (o *outlet) endWrite(p []byte) {
	if !o.maybe {
		o.out = append(o.out, p[o.kept:]...)
		return
	}
	o.out = append(o.out, p[o.kept:o.maybeAt]...)
	o.held = append(o.held, p[o.maybeAt:]...)
	o.maybeSize = len(o.held)
}

// suspect holds back a sequence that begins at in[i], since it may be a query.
// escaped says that the ESC before it has been let out.
func (o *outlet) suspect(i int, escaped bool) {
	o.maybe, o.maybeAt, o.escaped, o.closing = true, i, escaped, false
	o.broken = breaksCharacter(o.in[:i])
	o.maybeSize = -i
}

// clearUp lets the sequence being parsed out: it is no query.
func (o *outlet) clearUp() {
	if !o.maybe {
		return
	}
	o.maybe = false
	o.out = append(o.out, o.held...)
	o.held = o.held[:0]
}

// cut takes the sequence being parsed, which ends at in[end], out of the output
// but for what has been let out.
func (o *outlet) cut(end int) {
	if len(o.held) == 0 {
		o.out = append(o.out, o.in[o.kept:o.maybeAt]...)
	}
	o.maybe = false
	o.held = o.held[:0]
	o.kept = end
}

// replace takes the sequence being parsed, which ends at in[end], out of the
// output, with another one for viewers to see instead. If it has been let out
// but for its final it has no effect once another begins.
func (o *outlet) replace(end int, with []byte) {
	if !o.maybe {
		o.out = append(append(o.out, o.in[o.kept:end-1]...), with...)
		o.kept = end
		return
	}
	o.cut(end)
	if o.escaped {
		with = with[1:] // its ESC has been let out
	}
	o.out = append(o.out, with...)
}

// leaveOut keeps n bytes at in[i] from viewers.
func (o *outlet) leaveOut(i, n int) {
	o.out = append(o.out, o.in[o.kept:i]...)
	o.kept = i + n
}

// say gives an answer if asked for. It returns asked.
func (o *outlet) say(asked bool, answer string) bool {
	if asked {
		o.answers = append(o.answers, answer...)
	}
	return asked
}
