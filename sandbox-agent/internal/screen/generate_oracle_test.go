package screen_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// A generator writes random scripts in the grammar of terminal output.
type generator struct {
	*rand.Rand
	cols, rows int
	queries    bool // the program asks the terminal something
	wild       bool // sequences without an end, and bytes that mean nothing
}

// newScript is the nth random script of a seed, of about tokens tokens.
func newScript(seed, n uint64, tokens int) *script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, n))}
	g.size()
	switch g.IntN(4) {
	case 0:
		g.queries = true
	case 1:
		g.queries, g.wild = true, true
	}
	s := &script{Cols: g.cols, Rows: g.rows, Junk: g.Uint64(), Plain: !g.queries}
	if g.IntN(2) == 0 {
		s.Chunk = 1 + g.IntN(7)
	}
	for range tokens/2 + g.IntN(tokens) {
		if g.IntN(25) == 0 {
			g.resize()
			s.Steps = append(s.Steps, step{Cols: g.cols, Rows: g.rows})
			continue
		}
		s.Steps = append(s.Steps, step{Output: g.token()})
	}
	length := s.length()
	s.Cuts = []int{g.IntN(length + 1)}
	if g.IntN(2) == 0 {
		s.Cuts = append(s.Cuts, s.Cuts[0]+g.IntN(length+1-s.Cuts[0]))
	}
	return s
}

// dirty is a terminal of a size that has seen something else, perhaps only
// the beginning of it.
func dirty(seed uint64, cols, rows int) request {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), wild: true}
	g.size()
	r := request{Cols: g.cols, Rows: g.rows, Scrollback: historyLimit}
	s := screen.New(g.cols, g.rows) // spares it what viewers are spared
	write := func(output string) {
		if out, _ := s.Write(nil, nil, []byte(output)); len(out) > 0 {
			r.Steps = append(r.Steps, oracleStep{Write: out})
		}
	}
	for range g.IntN(20) {
		write(g.token())
	}
	s.Resize(cols, rows)
	r.Steps = append(r.Steps, oracleStep{Resize: &[2]int{cols, rows}})
	g.cols, g.rows = cols, rows
	for range g.IntN(20) {
		write(g.token())
	}
	write(g.unfinished())
	if held := s.Flush(nil); len(held) > 0 {
		r.Steps = append(r.Steps, oracleStep{Write: held})
	}
	return r
}

func (g *generator) size() {
	switch n := g.IntN(20); {
	case n < 10:
		g.cols, g.rows = 2+g.IntN(9), 1+g.IntN(6)
		if g.IntN(200) == 0 {
			g.cols = 1
		}
	case n < 16:
		g.cols, g.rows = 10+g.IntN(31), 3+g.IntN(10)
	case n < 19:
		g.cols, g.rows = 80, 24
	default:
		g.cols, g.rows = 2+g.IntN(199), 1+g.IntN(60)
	}
}

func (g *generator) resize() {
	switch g.IntN(6) {
	case 0:
		g.size()
	case 1:
		g.rows = max(1, g.rows+g.IntN(7)-3)
	default:
		g.cols = max(min(g.cols, 2), min(200, g.cols+g.IntN(11)-5))
		g.rows = max(1, min(60, g.rows+g.IntN(5)-2))
	}
}

func pick[T any](g *generator, choices ...T) T { return choices[g.IntN(len(choices))] }

// token is a text, a control or a sequence.
func (g *generator) token() string {
	switch n := g.IntN(100); {
	case n < 30:
		return g.text()
	case n < 38:
		return g.cluster()
	case n < 52:
		return g.control()
	case n < 62:
		return g.sgr()
	case n < 85:
		return g.csi()
	case n < 90:
		return g.mode()
	case n < 94:
		return g.escape()
	case n < 97:
		return g.osc()
	case g.queries && n < 99:
		return g.query()
	case g.wild:
		return g.broken()
	}
	return g.text()
}

// text is words, often longer than a line.
func (g *generator) text() string {
	var b strings.Builder
	for n := 1 + g.IntN(2*g.cols+2); b.Len() < n; {
		switch g.IntN(12) {
		case 0:
			b.WriteByte(' ')
		case 1:
			b.WriteString(strings.Repeat("=", 1+g.IntN(4)))
		case 2:
			b.WriteString(pick(g, "你", "好", "界", "한", "コ", "ｗ", "│", "é", "ß", "→", "±"))
		default:
			b.WriteByte(byte('A' + g.IntN(26)))
		}
	}
	return b.String()
}

// Clusters whose parts arrive together or not: marks, emoji, flags, Hangul
// syllables, Indic vowels, and characters without a width.
var clusterParts = []string{
	"e", "a", "\u0301", "\u0323", "\u20e3", "1", "#", "\u200d", "\ufe0f", "\ufe0e", "❤", "☺", "☎", "©", "👍", "👩", "👨", "💻", "🏽",
	"🇩", "🇪", "🇫", "ᄒ", "ᅡ", "ᆫ", "가", "각", "क", "ि", "्", "ष", "ா", "\u0600", "\u200b", "\u00ad", "\ufeff", "\u2060", "\ue000",
	"\U0010ffff", "\U000e0061", "\U000e007f", "🏴", "你", "ａ", "\u3099", "か", "\u0e33", "\u0e01", "\u115f", "\u1160", "\u2028", "…", "—", "•", "“",
}

func (g *generator) cluster() string {
	switch g.IntN(3) {
	case 0:
		return pick(g, "👨‍👩‍👧‍👦", "👍🏽", "❤️", "☺︎", "1️⃣", "🇩🇪", "🇩🇪🇫", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "क्षि", "각", "e\u0301\u0323", "が")
	case 1:
		return pick(g, clusterParts...)
	}
	var b strings.Builder
	for range 1 + g.IntN(6) {
		b.WriteString(pick(g, clusterParts...))
	}
	return b.String()
}

func (g *generator) control() string {
	switch g.IntN(12) {
	case 0, 1, 2:
		return "\r\n"
	case 3, 4:
		return strings.Repeat("\n", 1+g.IntN(3))
	case 5:
		return "\r"
	case 6:
		return strings.Repeat("\b", 1+g.IntN(3))
	case 7:
		return strings.Repeat("\t", 1+g.IntN(2))
	case 8:
		return pick(g, "\x0e", "\x0f")
	case 9:
		return pick(g, "\x0b", "\x0c", "\a", "\x00", "\x7f", "\x01", "\x18", "\x1a")
	case 10:
		return pick(g, "\u0084", "\u0085", "\u0088", "\u008d", "\u0090q\u009c", "\u009b3C", "\u009d2;c1\u009c", "\u0098x\u009c", "\u0080")
	}
	return "\n"
}

// number is mostly one that means something on this screen.
func (g *generator) number(limit int) string {
	switch g.IntN(16) {
	case 0:
		return ""
	case 1:
		return "0"
	case 2:
		return fmt.Sprint(g.cols)
	case 3:
		return fmt.Sprint(g.rows)
	case 4:
		return fmt.Sprint(min(limit, pick(g, 255, 999, 65535, 65536, 2147483647, 2147483648)))
	}
	return fmt.Sprint(g.IntN(max(g.cols, g.rows)+3) % (limit + 1))
}

func (g *generator) csi() string {
	final := pick(g, "A", "B", "C", "D", "E", "F", "G", "H", "H", "H", "I", "J", "K", "K", "L", "M", "P", "S", "T", "X", "Z", "@",
		"`", "a", "b", "b", "d", "e", "f", "g", "r", "r", "s", "u", " @", " A", "'}", "'~", "?J", "?K", "!p", " q", "\"q", "y", "?s", "?r", ">m", "t")
	prefix := ""
	if final[0] == '?' || final[0] == '>' {
		prefix, final = final[:1], final[1:]
	}
	var params []string
	for range g.IntN(4) {
		limit := 1 << 31
		if final == "b" {
			limit = 300 // a Screen keeps no lines of any length
		}
		switch final {
		case "J", "K", "g", "\"q":
			limit = 3
		case " q":
			limit = 7
		}
		params = append(params, g.number(limit))
	}
	text := strings.Join(params, ";")
	switch g.IntN(40) {
	case 0:
		text += pick(g, ":3", ":", ";", ";;;", strings.Repeat("1;", 40))
	case 1:
		text += pick(g, "\n", "\r", "\b", "\x7f", "\x00") // carried out in the middle
	}
	if final == "t" { // titles only: sizes are queries
		text = pick(g, "22;0", "23;0", "22;2", "23;2", "1", "8;10;20")
	}
	return "\x1b[" + prefix + text + final
}

func (g *generator) sgr() string {
	var params []string
	for range g.IntN(5) {
		switch g.IntN(8) {
		case 0:
			params = append(params, pick(g, "38;5;", "48;5;", "58;5;", "38:5:", "48:5:", "58:5:")+fmt.Sprint(g.IntN(300)))
		case 1:
			params = append(params, fmt.Sprintf(pick(g, "38;2;%d;%d;%d", "48;2;%d;%d;%d", "58;2;%d;%d;%d", "38:2::%d:%d:%d", "48:2:%d:%d:%d", "58:2::%d:%d:%d"), g.IntN(256), g.IntN(300), g.IntN(256)))
		case 2:
			params = append(params, pick(g, "4:0", "4:1", "4:2", "4:3", "4:4", "4:5", "4:6", "4:", "59", "38", "48;5", "38;2;1", "38:2", "58:5", "1:2", "0:0"))
		case 3:
			params = append(params, fmt.Sprint(pick(g, 0, 30, 40, 90, 100)+g.IntN(8)))
		default:
			params = append(params, fmt.Sprint(g.IntN(65)))
		}
	}
	return "\x1b[" + strings.Join(params, pick(g, ";", ";", ";", ";;")) + "m"
}

func (g *generator) mode() string {
	if g.IntN(5) == 0 {
		return "\x1b[" + pick(g, "4", "20", "2", "4;20", "3") + pick(g, "h", "l")
	}
	modes := []string{pick(g, "1", "6", "7", "7", "12", "25", "45", "45", "66", "9", "1000", "1002", "1003", "1004", "1005", "1006", "1015", "1016",
		"47", "1047", "1048", "1049", "1049", "2004", "2026", "2", "3", "5", "8", "2031", "")}
	for g.IntN(4) == 0 {
		modes = append(modes, pick(g, "1", "6", "7", "25", "45", "1006", "1049", "2004"))
	}
	return "\x1b[?" + strings.Join(modes, ";") + pick(g, "h", "h", "l")
}

func (g *generator) escape() string {
	switch g.IntN(8) {
	case 0, 1:
		return "\x1b" + pick(g, "(", ")", "*", "+", "-", ".", "/") + pick(g, "0", "0", "A", "B", "B", "4", "R", "K", "Z", "=", "1", "5")
	case 2:
		return "\x1b#" + pick(g, "8", "8", "3", "6")
	case 3:
		return "\x1b" + pick(g, "=", ">", "n", "o", "|", "}", "~", "%@", "%G", "N", "O", " F", "Q")
	case 4:
		if g.IntN(3) == 0 {
			return "\x1bc"
		}
	case 5:
		return pick(g, "\x1bPq#0;2;0;0;0~-\x1b\\", "\x1b_Gi=1;AAAA\x1b\\", "\x1b^pm\x1b\\", "\x1bXsos\x1b\\", "\x1bP1;2|ab\x1b\\", "\x1bPx\x18")
	}
	return "\x1b" + pick(g, "7", "7", "8", "8", "D", "E", "H", "M", "M")
}

func (g *generator) osc() string {
	end := pick(g, "\a", "\x1b\\", "\a", "\x1b\\", "\x18")
	switch g.IntN(8) {
	case 0, 1:
		return "\x1b]" + pick(g, "0", "1", "2") + ";" + pick(g, "", "vim", "a;b", "tïtle", "~/src — zsh", "\x01x") + end
	case 2, 3, 4:
		return "\x1b]8;" + pick(g, "", "", "id=1", "id=x:y=2", "a=b") + ";" + pick(g, "", "", "http://example.com/", "file:///srv/a;b", "x") + end
	case 5:
		return "\x1b]" + pick(g, "4;1;#102030", "4;1;rgb:11/22/33;255;#abc", "4;256;#fff", "104", "104;1", "4;x;#fff", "104;1;2") + end
	case 6:
		return "\x1b]" + pick(g, "10;#112233", "11;rgb:a/b/c", "12;#000000", "10;#111;#222;#333;#444", "110", "111", "112", "10;red") + end
	}
	return "\x1b]" + pick(g, "52;c;aGVsbG8=", "7;file:///srv/demo", "133;A", "9;done", "1337;SetMark", "", ";", "99999;x", "x") + end
}

// query is something that the sandbox answers.
func (g *generator) query() string {
	switch g.IntN(5) {
	case 0:
		return pick(g, "\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?996n", "\x05", "\x1b[>q", "\x1b[?u", "\x1b[00c", "\x1b[>0q")
	case 1:
		return fmt.Sprintf("\x1b[%s%d$p", pick(g, "", "?"), pick(g, 1, 2, 3, 4, 6, 7, 12, 20, 25, 45, 47, 66, 1000, 1003, 1006, 1049, 2004, 2026, 9999))
	case 2:
		return "\x1bP" + pick(g, "$qm", "$qr", "$q q", "$q\"q", "$q\"p", "$qx", "+q544e", "+q436f;524742", "+qzz", "$q") + pick(g, "\x1b\\", "\x1b\\", "\x18")
	case 3:
		return "\x1b]" + pick(g, "4;1;?", "10;?", "11;?", "12;?", "10;?;?;?", "4;0;?;1;?", "4;1;#123456;2;?", "52;c;?", "10;#010203;?") + pick(g, "\a", "\x1b\\")
	}
	return "\x1b[" + pick(g, "14", "16", "18", "19", "11", "13", "20", "21") + "t"
}

// unfinished is the beginning of a sequence or character.
func (g *generator) unfinished() string {
	return pick(g, "", "\x1b", "\x1b[", "\x1b[3", "\x1b[3;", "\x1b[?", "\x1b[?25", "\x1b[1;2\"", "\x1b]", "\x1b]2", "\x1b]2;title", "\x1b]8;;http://example.com", "\x1b]52;c;", "\x1b]4;1;",
		"\x1bP", "\x1bP$q", "\x1bPq##", "\x1bP1;2", "\x1b(", "\x1b#", "\x1b_G", "\x1b^", "\x1bX", "\xe2", "\xe2\x80", "\xf0\x9f", "\xf0\x9f\x91", "\xc3", "\x1b]0;é\xe2", "\x1b[:", "\x1b[<1", "\x1b[3 ", "\x1b[!")
}

// broken is output that programs don't mean, as binary files have it.
func (g *generator) broken() string {
	switch g.IntN(4) {
	case 0, 1:
		return g.unfinished()
	case 2:
		return g.anySequence()
	}
	b := make([]byte, 1+g.IntN(5))
	for i := range b {
		for b[i] = byte(g.Uint32()); '0' <= b[i] && b[i] <= '9'; b[i] = byte(g.Uint32()) { // no large counts
		}
	}
	return string(b)
}

// anySequence is a sequence that mostly nobody knows.
func (g *generator) anySequence() string {
	intermediate := pick(g, "", "", string(rune(' '+g.IntN(16))))
	final := string(rune('@' + g.IntN(63)))
	switch g.IntN(4) {
	case 0:
		return "\x1b" + intermediate + string(rune('0'+g.IntN(79)))
	case 1:
		return fmt.Sprintf("\x1b]%d;%d;#a\a", g.IntN(120), g.IntN(9))
	case 2:
		return "\x1bP" + g.number(9) + intermediate + final + "x\x1b\\"
	}
	return "\x1b[" + pick(g, "", "", "<", "=", ">", "?") + g.number(300) + pick(g, "", ";", ":") + g.number(300) + intermediate + final
}
