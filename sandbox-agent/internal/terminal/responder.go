package terminal

import "bytes"

// Answers to the queries that a responder takes out of the output. They are
// those of xterm.js, which shows the output: a VT220 with colours.
const (
	answerDA1 = "\x1b[?62;22c"          // to CSI c: primary device attributes
	answerDA2 = "\x1b[>0;276;0c"        // to CSI > c: secondary
	answerDA3 = "\x1bP!|00000000\x1b\\" // to CSI = c: tertiary, no unit id
	answerDSR = "\x1b[0n"               // to CSI 5 n: operating
)

const (
	escape = 0x1b
	// maxQueryBytes bounds a query, and so what a responder holds back. All
	// but a few bytes would be zeros, which change nothing.
	maxQueryBytes = 16
)

// A responder filters a program's output. Terminal queries whose answer is
// always the same are removed and answered here, once, however many viewers
// there are. Everything else passes unchanged, the cursor position query too,
// which only a viewer's terminal can answer. It holds back nothing but the
// beginning of what may become such a query. The zero responder is ready.
type responder struct {
	held []byte // a proper prefix of a query
}

// filter appends p without its queries to out and their answers to answers.
// What it held of earlier output comes first.
func (r *responder) filter(out, answers, p []byte) (o, a []byte) {
	for len(p) > 0 {
		if len(r.held) == 0 {
			i := bytes.IndexByte(p, escape)
			if i < 0 {
				return append(out, p...), answers
			}
			out = append(out, p[:i]...)
			r.held = append(r.held, escape)
			p = p[i+1:]
			continue
		}
		r.held = append(r.held, p[0])
		answer, possible := classify(r.held)
		switch {
		case answer != "":
			answers = append(answers, answer...)
			r.held = r.held[:0]
		case !possible:
			// p[0] may itself begin a query, so it stays in p.
			out = append(out, r.held[:len(r.held)-1]...)
			r.held = r.held[:0]
			if p[0] == escape {
				continue
			}
			out = append(out, p[0])
		}
		p = p[1:]
	}
	return out, answers
}

// flush appends what was held back: the output has ended.
func (r *responder) flush(out []byte) []byte {
	out = append(out, r.held...)
	r.held = nil
	return out
}

// classify tells what b, which begins with ESC, is: a query with an answer, or
// else perhaps the beginning of one. A query is CSI, one of none, ">" and "=",
// any number of zeros and "c", or CSI, zeros and "5n".
func classify(b []byte) (answer string, possible bool) {
	room := len(b) < maxQueryBytes // for what is still to come
	if len(b) < 3 {
		return "", len(b) < 2 || b[1] == '['
	}
	params, answer := b[2:], answerDA1
	switch params[0] {
	case '>':
		params, answer = params[1:], answerDA2
	case '=':
		params, answer = params[1:], answerDA3
	}
	switch rest := string(bytes.TrimLeft(params, "0")); rest {
	case "c":
		return answer, true
	case "":
		return "", room
	case "5":
		return "", room && answer == answerDA1
	case "5n":
		if answer == answerDA1 {
			return answerDSR, true
		}
	}
	return "", false
}
