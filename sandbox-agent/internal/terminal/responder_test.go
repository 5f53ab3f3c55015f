package terminal

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func TestResponder(t *testing.T) {
	for _, tt := range []struct{ name, in, out, answers string }{
		{"plain", "ls\r\n", "ls\r\n", ""},
		{"DA1", "a\x1b[cb", "ab", answerDA1},
		{"DA1 with 0", "\x1b[0c", "", answerDA1},
		{"DA2", "\x1b[>c\x1b[>0c", "", answerDA2 + answerDA2},
		{"DA3", "\x1b[=c", "", answerDA3},
		{"DSR 5", "\x1b[5n", "", answerDSR},
		{"cursor position", "\x1b[6n\x1b[?6n", "\x1b[6n\x1b[?6n", ""},
		{"DA with another parameter", "\x1b[1c\x1b[0;0c\x1b[?c", "\x1b[1c\x1b[0;0c\x1b[?c", ""},
		{"DA3 is no DSR", "\x1b[>5n\x1b[=5n", "\x1b[>5n\x1b[=5n", ""},
		{"colours", "\x1b[0;31mred\x1b[0m", "\x1b[0;31mred\x1b[0m", ""},
		{"ESC twice", "\x1b\x1b[c", "\x1b", answerDA1},
		{"query in a query", "\x1b[\x1b[c5n", "\x1b[5n", answerDA1},
		{"many zeros", "\x1b[00000000000000c", "\x1b[00000000000000c", ""},
		{"fewer zeros", "\x1b[0000000000000c", "", answerDA1},
		{"unfinished", "a\x1b[>0", "a\x1b[>0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for split := range len(tt.in) + 1 {
				var r responder
				out, answers := r.filter(nil, nil, []byte(tt.in[:split]))
				out, answers = r.filter(out, answers, []byte(tt.in[split:]))
				out = r.flush(out)
				if string(out) != tt.out || string(answers) != tt.answers {
					t.Errorf("split at %d: %q, answers %q; want %q, %q", split, out, answers, tt.out, tt.answers)
				}
			}
		})
	}
}

// TestResponderHoldsLittle shows that output is held only while it may become
// a query.
func TestResponderHoldsLittle(t *testing.T) {
	var r responder
	for _, tt := range []struct{ in, out string }{
		{"$ ", "$ "}, {"\x1b", ""}, {"[", ""}, {"0", ""}, {";", "\x1b[0;"}, {"31m", "31m"}, {"\x1b]", "\x1b]"},
	} {
		if out, _ := r.filter(nil, nil, []byte(tt.in)); string(out) != tt.out {
			t.Fatalf("after %q: %q, want %q", tt.in, out, tt.out)
		}
	}
}

// queries is what a responder takes out, as a pattern.
var queries = regexp.MustCompile(`\x1b\[(?:0{0,13}c|[>=]0{0,12}c|0{0,12}5n)`)

func FuzzResponder(f *testing.F) {
	for _, s := range []string{"\x1b[c\x1b[0c", "\x1b[>c\x1b[=0c\x1b[5n\x1b[6n", "a\x1b\x1b[\x1b[00", strings.Repeat("0", 20)} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		want := queries.ReplaceAll(in, nil)
		var r responder
		var out, answers []byte
		for p := in; len(p) > 0; {
			n := min(int(step)+1, len(p))
			out, answers = r.filter(out, answers, p[:n])
			if len(r.held) >= maxQueryBytes {
				t.Fatalf("%d bytes held", len(r.held))
			}
			p = p[n:]
		}
		if out = r.flush(out); !bytes.Equal(out, want) {
			t.Fatalf("%q became %q, want %q", in, out, want)
		}
		if n := len(queries.FindAll(in, -1)); len(answers) < n*len(answerDSR) || len(answers) > n*len(answerDA3) {
			t.Fatalf("%d queries, answers %q", n, answers)
		}
	})
}

func BenchmarkResponder(b *testing.B) {
	line := []byte("\x1b[0;32muser\x1b[0m: some output of an ordinary program, 80 columns wide or so\r\n")
	in := bytes.Repeat(line, 400)
	var r responder
	out, answers := r.filter(nil, nil, in)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		out, answers = r.filter(out[:0], answers[:0], in)
	}
}
