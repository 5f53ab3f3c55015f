package redact_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// secretsOf returns n random secrets of the shapes that are common.
func secretsOf(r *rand.Rand, n int) []string {
	word := func(alphabet string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = alphabet[r.IntN(len(alphabet))]
		}
		return string(b)
	}
	raw := func(n int) []byte { return []byte(word(string(allBytes()), n)) }
	words := strings.Fields("Sommer Winter secret hunter dragon Berlin Letmein Welcome master qwerty Passwort admin")
	shapes := []func() string{
		func() string { return "ghp_" + word(lower+upper+digits, 36) },
		func() string { return "sk-ant-api03-" + word(lower+upper+digits+"-_", 80) },
		func() string { return "sk-proj-" + word(lower+upper+digits, 48) },
		func() string { return "AKIA" + word(upper+digits, 16) },
		func() string { return word("0123456789abcdef", 32) },
		func() string { return base64.StdEncoding.EncodeToString(raw(30)) },
		func() string {
			return "eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(raw(40)) + "." + base64.RawURLEncoding.EncodeToString(raw(32))
		},
		func() string { return words[r.IntN(len(words))] + word(digits, 4) + word("!?#$%&", 1) },
		func() string {
			return "postgres://app:" + word(lower+digits, 12) + "@db-" + word(digits, 3) + ".internal:5432/app"
		},
		func() string { return word(lower+upper+digits+"!#$%&*+-./:;<=>?@^_~", 20) },
	}
	secrets := make([]string, n)
	for i := range secrets {
		secrets[i] = shapes[i%len(shapes)]()
	}
	return secrets
}

func allBytes() []byte {
	b := make([]byte, 128)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// An output is what a program writes, to be repeated.
type output struct {
	name string
	text []byte
}

// outputs returns about 1 MiB each of what terminals show much of.
func outputs(r *rand.Rand) []output {
	const size = 1 << 20
	var logs, tui, random, blob, hexes, unicode, build bytes.Buffer
	for i := 0; logs.Len() < size; i++ {
		fmt.Fprintf(&logs, "\x1b[2m2026-11-21T12:%02d:%02d.%03dZ\x1b[0m \x1b[32mINFO\x1b[0m request served \x1b[3mpath\x1b[0m=/v1/items/%d \x1b[3mstatus\x1b[0m=200 took=%dms\r\n",
			i/60%60, i%60, i%1000, r.IntN(1e6), r.IntN(97))
	}
	for tui.Len() < size {
		for row := range 24 {
			fmt.Fprintf(&tui, "\x1b[%d;1H\x1b[38;5;%dm%-6d\x1b[0;1;48;2;%d;20;30m %s \x1b[m\x1b[K", row+1, r.IntN(256), r.IntN(99999), r.IntN(256), strings.Repeat("|", r.IntN(40)))
		}
	}
	for random.Len() < size {
		random.WriteByte(byte(' ' + r.IntN(95)))
		if random.Len()%81 == 0 {
			random.WriteString("\r\n")
		}
	}
	for blob.Len() < size {
		line := make([]byte, 57)
		for i := range line {
			line[i] = byte(r.UintN(256))
		}
		blob.WriteString(base64.StdEncoding.EncodeToString(line) + "\r\n")
		fmt.Fprintf(&hexes, "%x  %s\r\n", line[:32], "some/file/of/the/tree.go")
	}
	for unicode.Len() < size {
		unicode.WriteString("漢字かな交じり文 — naïve café ✓ │ 👩‍💻 🇩🇪 e\u0301\r\n")
	}
	for build.Len() < size {
		fmt.Fprintf(&build, "  CC      drivers/net/ethernet/vendor%d/module_%d.o\r\nnpm WARN deprecated package-%d@%d.%d.%d: please upgrade\r\n",
			r.IntN(50), r.IntN(5000), r.IntN(900), r.IntN(20), r.IntN(20), r.IntN(20))
	}
	return []output{{"logs", logs.Bytes()}, {"tui", tui.Bytes()}, {"build", build.Bytes()}, {"random", random.Bytes()},
		{"base64", blob.Bytes()}, {"hex", hexes.Bytes()}, {"unicode", unicode.Bytes()}}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(5, 1)) }

func compile(t testing.TB, secrets ...string) *redact.Set {
	t.Helper()
	s, err := redact.Compile(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkWrite writes output as it comes from a terminal, 32 KiB at once.
func BenchmarkWrite(b *testing.B) {
	texts := outputs(newRand())
	for _, n := range []int{0, 100, 10000} {
		s := compile(b, secretsOf(newRand(), n)...)
		for _, o := range texts {
			b.Run(fmt.Sprintf("%d/%s", n, o.name), func(b *testing.B) {
				benchmark(b, s, o.text)
			})
		}
	}
}

func benchmark(b *testing.B, s *redact.Set, text []byte) {
	r := s.NewStream()
	var out []byte
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		for p := text; len(p) > 0; {
			n := min(len(p), 32<<10)
			out = r.Write(out[:0], p[:n])
			p = p[n:]
		}
	}
}

// BenchmarkWriteByte writes one byte at a time.
func BenchmarkWriteByte(b *testing.B) {
	text := outputs(newRand())[0].text
	r := compile(b, secretsOf(newRand(), 10000)...).NewStream()
	var out []byte
	i := 0
	for b.Loop() {
		out = r.Write(out[:0], text[i:i+1])
		i = (i + 1) % len(text)
	}
}

// BenchmarkCompile tells how long a set takes to build, and its memory.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{100, 10000} {
		secrets := secretsOf(newRand(), n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			s := compile(b, secrets...)
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportAllocs()
			for b.Loop() {
				compile(b, secrets...)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-kept")
			runtime.KeepAlive(s)
		})
	}
}

// BenchmarkHostile writes output, with secrets to match it, that is as bad as can
// be for a search.
func BenchmarkHostile(b *testing.B) {
	r := newRand()
	word := func(n int) string {
		w := make([]byte, n)
		for i := range w {
			w[i] = (lower + upper + digits)[r.IntN(62)]
		}
		return string(w)
	}
	each := func(n int, f func(i int) string) []string {
		s := make([]string, n)
		for i := range s {
			s[i] = f(i)
		}
		return s
	}
	fill := func(f func() string) []byte {
		var t bytes.Buffer
		for t.Len() < 32<<10 {
			t.WriteString(f())
		}
		return t.Bytes()
	}
	const a = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	powers := each(1000, func(i int) string { return strings.Repeat("a", 8+i) })
	combs := each(1000, func(i int) string { return strings.Repeat("a", 8+i) + "b" })
	github := each(10000, func(int) string { return "ghp_" + word(36) })
	shared := each(5000, func(int) string { return strings.Repeat("A", 200) + word(16) })
	long := each(300, func(int) string { return word(3000) })
	periods := each(500, func(i int) string { return strings.Repeat("ab", 8+i) })
	for _, c := range []struct {
		name    string
		secrets []string
		text    []byte
	}{
		{"powers/a", powers, fill(func() string { return a })},
		{"powers/a^1000 x", powers, fill(func() string { return strings.Repeat("a", 1000) + "x" })},
		{"powers/a^n x", powers, fill(func() string { return a[:1+r.IntN(20)] + "x" })},
		{"powers/a ESC", powers, fill(func() string { return "a\x1b[m" })},
		{"combs/a", combs, fill(func() string { return a })},
		{"combs/a^1000 x", combs, fill(func() string { return strings.Repeat("a", 1000) + "x" })},
		{"combs/erased", combs, fill(func() string { return "ax\ba" })},
		{"combs/typed again", combs, fill(func() string { return "aa\b" })},
		{"periods/ab", periods, fill(func() string { return "abababababababab" })},
		{"periods/ab x", periods, fill(func() string { return strings.Repeat("ab", 400) + "x" })},
		{"github/ghp_", github, fill(func() string { return "ghp_" })},
		{"github/prefixes", github, fill(func() string { s := github[r.IntN(len(github))]; return s[:4+r.IntN(36)] })},
		{"github/secrets", github, fill(func() string { return github[r.IntN(len(github))] })},
		{"github/hex", github, fill(func() string { return fmt.Sprintf("%x", github[r.IntN(len(github))][:1+r.IntN(30)]) })},
		{"shared/A", shared, fill(func() string { return "AAAAAAAAAAAAAAAA" })},
		{"shared/A^199 B", shared, fill(func() string { return strings.Repeat("A", 199) + "B" })},
		{"shared/prefixes", shared, fill(func() string { return shared[r.IntN(len(shared))][:200+r.IntN(16)] })},
		{"long/prefixes", long, fill(func() string { return long[r.IntN(len(long))][:2990] })},
		{"long/erased", long[:1], append([]byte(long[0][:2990]), fill(func() string { return "#\b" })...)},
	} {
		s := compile(b, c.secrets...)
		b.Run(c.name, func(b *testing.B) { benchmark(b, s, c.text) })
	}
}
