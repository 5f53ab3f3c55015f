package screen_test

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// A mirror is a grid that is right: it reports what the oracle shows, and its
// keyframe is a reset and all of the output. So it can't be resized. It has
// faults on request.
type mirror struct {
	t      *testing.T
	oracle *oracle
	cols   int
	rows   int
	output []byte

	shows     func([]byte) []byte // the output that the state is reported of
	passes    func([]byte) []byte // the output that viewers get
	keyframes func([]byte) []byte
	keeps     bool // the dirt of terminals that get a keyframe
}

// resetAll is what RIS leaves as it was in xterm.js: a cursor that is hidden,
// new line mode, colours and the title.
const resetAll = "\x18\x1bc\x1b[?25h\x1b[20l\x1b]104\a\x1b]110\a\x1b]111\a\x1b]112\a\x1b]2;\a"

func (m *mirror) Write(out, answers, p []byte) (o, a []byte) {
	m.output = append(m.output, p...)
	if m.passes != nil {
		p = m.passes(p)
	}
	return append(out, p...), answers
}

func (m *mirror) Flush(out []byte) []byte { return out }

func (m *mirror) Resize(cols, rows int) { panic("a mirror can't be resized") }

func (m *mirror) AppendKeyframe(dst []byte, history int) []byte {
	output := m.output
	if m.keyframes != nil {
		output = m.keyframes(output)
	}
	if !m.keeps {
		dst = append(dst, resetAll...)
	}
	return append(dst, output...)
}

func (m *mirror) state() *state {
	output := m.output
	if m.shows != nil {
		output = m.shows(output)
	}
	replies := m.oracle.ask(m.t, request{m.cols, m.rows, historyLimit, []oracleStep{{Write: output}, {Snapshot: true}}})
	if replies[0].Error != nil {
		return new(state)
	}
	s := decodeState(m.t, replies[0].States[0])
	for i, l := range s.Screen {
		s.Screen[i] = l.shown()
	}
	return s
}

// mirrored is a script without what a mirror can't do.
func mirrored(n uint64) *script {
	s := newScript(1, n, 40)
	s.Plain = true
	var steps []step
	for _, step := range s.Steps {
		if step.Cols == 0 && !strings.Contains(step.Output, "\x1bc") {
			steps = append(steps, step)
		}
	}
	s.Steps = steps
	s.Cuts = []int{s.length() / 3, s.length() * 2 / 3}
	return s
}

// TestOracleAgreesWithItself proves that what a right grid does is never
// called a difference.
func TestOracleAgreesWithItself(t *testing.T) {
	t.Parallel()
	o := startOracle(t)
	for n := range uint64(*oracleStreams) * 3 / 20 {
		s := mirrored(n)
		s.Plain = false
		newMirror := func(cols, rows int) grid { return &mirror{t: t, oracle: o, cols: cols, rows: rows} }
		if d := s.check(t, o, newMirror).difference; d != "" && !strings.Contains(d, "answer what should") {
			s, d = s.shrink(t, o, newMirror, d)
			t.Errorf("script %d: %s\n%s", n, d, s)
		}
	}
}

// faultSteps are output of which every part matters.
func faultSteps() []step {
	return []step{
		{Output: "old\r\n\n\n\n\n\n\x1b[H\x1b[1;31mred\x1b[m \x1b]8;;http://example.com\alink\x1b]8;;\a 你e\u0301" +
			"\x1b[?2004h\x1b[?1002h\x1b]2;title\a\x1b[2;4r\x1b(0\x1b[3;4H\x1b7x\x1b[4;58;5;9m_"},
		{Output: "\x1b[?1;1049h.\x1b[5;5H"},
		{Output: "y\x1b[?1049l\x1b8z\n"},
	}
}

// TestOracleFindsFaults proves that each comparison fails when it should.
func TestOracleFindsFaults(t *testing.T) {
	t.Parallel()
	o := startOracle(t)
	change := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.ReplaceAll(string(b), old, new)) }
	}
	behind := func(b []byte) []byte {
		if !strings.Contains(string(b), "1049") {
			return b
		}
		return change("red", "rad")(b)
	}
	steps := faultSteps()
	cuts := []int{len(steps[0].Output), len(steps[0].Output) + len(steps[1].Output)}
	tests := []struct {
		name  string
		fault mirror
		want  string // in the report
	}{
		{"none", mirror{}, ""},
		{"text", mirror{shows: change("red", "rad")}, `Screen: screen, row 0: column 1: got "a"`},
		{"colour", mirror{shows: change("31", "32")}, "fg 0x1000002"},
		{"bold", mirror{shows: change("1;31", "31")}, "flags 0x1"},
		{"link", mirror{shows: change("example.com", "example.org")}, "http://example.org"},
		{"mark", mirror{shows: change("e\u0301", "e")}, "column 11: got \"e\""},
		{"width", mirror{shows: change("你", "n ")}, "\"你\" width 2"},
		{"mode", mirror{shows: change("2004", "2005")}, "mode bracketedPaste"},
		{"mouse", mirror{shows: change("1002", "1003")}, "mouse mode"},
		{"title", mirror{shows: change("title", "tilte")}, "title: got"},
		{"cursor", mirror{shows: change("5;5H", "5;6H")}, "cursor: got column 5"},
		{"alternate", mirror{shows: change("?1;1049h", "?1h")}, "alternate screen"},
		{"history", mirror{shows: change("old", "new")}, "history, 1 lines back"},
		{"passed on", mirror{passes: change("y", "z")}, "viewers got"},
		{"dirt", mirror{keeps: true}, "got a keyframe"},
		{"keyframe: margins", mirror{keyframes: change("\x1b[2;4r", "\x1b[H")}, "got a keyframe"},
		{"keyframe: underline", mirror{keyframes: change("58;5;9", "58;5;8")}, "got a keyframe"},
		{"keyframe: charset", mirror{keyframes: change("\x1b(0", "\x1b(A")}, "got a keyframe"},
		{"keyframe: saved cursor", mirror{keyframes: change("\x1b7", "")}, "hidden state"},
		{"keyframe: cursor keys", mirror{keyframes: change("?1;1049", "?1049")}, "mode applicationCursor"},
		{"keyframe: screen behind", mirror{keyframes: behind}, "normal screen behind, row 0"},
		{"keyframe: history", mirror{keyframes: change("old", "olé")}, "history, row 0"},
		{"keyframe: end", mirror{keyframes: change("5;5H", "5;5")}, "got a keyframe"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &script{Cols: 16, Rows: 6, Steps: steps, Chunk: 7, Cuts: cuts, Junk: rand.Uint64(), Plain: true}
			newMirror := func(cols, rows int) grid {
				m := test.fault
				m.t, m.oracle, m.cols, m.rows = t, o, cols, rows
				return &m
			}
			got := s.check(t, o, newMirror).difference
			if test.want == "" && got != "" || !strings.Contains(got, test.want) || test.want != "" && got == "" {
				t.Errorf("reported %q, want %q; %s", got, test.want, s)
			}
		})
	}
}
