package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const (
	token    = "ghp_Zx81kQ0vT5mY7uRb2LwN9aCe4DfGh6JiKpSo"
	password = `p/a "ss'w\o&r<d>+%=~é漢😀!`
	pemKey   = "-----BEGIN KEY-----\nMIIBVgIBADANBgkq+hkiG9w0BAQ/EFAASCAUAwggE8\nAgEAAkEAq7BFUpkGp3+LQmlQ==\n-----END KEY-----\n"
)

// forms returns encodings of a secret, made by other means than the package's.
func forms(secret string) map[string]string {
	f := map[string]string{
		"plain":         secret,
		"hex":           hex.EncodeToString([]byte(secret)),
		"HEX":           strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"hex colons":    strings.TrimSuffix(strings.ReplaceAll(fmt.Sprintf("% x", secret), " ", ":"), ":"),
		"hex spaces":    fmt.Sprintf("% X", secret),
		"hex escapes":   `\x` + strings.ReplaceAll(fmt.Sprintf("% x", secret), " ", `\x`),
		"query":         url.QueryEscape(secret),
		"path":          url.PathEscape(secret),
		"query lower":   lowerPercent(url.QueryEscape(secret)),
		"percent":       "%" + strings.ReplaceAll(fmt.Sprintf("% x", secret), " ", "%"),
		"PERCENT":       "%" + strings.ReplaceAll(fmt.Sprintf("% X", secret), " ", "%"),
		"JSON":          inJSON(secret, true),
		"JSON plain":    inJSON(secret, false),
		"JSON slash":    strings.ReplaceAll(inJSON(secret, false), "/", `\/`),
		"JSON units":    units(secret, "%04x"),
		"JSON UNITS":    units(secret, "%04X"),
		"single quoted": strings.ReplaceAll(secret, "'", `'\''`),
	}
	for phase := range 3 {
		long := "?!"[:phase] + secret
		from := (8*phase + 5) / 6
		for name, e := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			f[fmt.Sprint(name, " ", phase)] = e.EncodeToString([]byte(long))[from : len(long)*8/6]
		}
	}
	for phase := range 4 {
		f[fmt.Sprint("groups of 2, ", phase%2)] = grouped(fmt.Sprintf("%x", "zzz"[:phase%2]+secret), phase%2, 4)
		f[fmt.Sprint("GROUPS of 2, ", phase%2)] = grouped(fmt.Sprintf("%X", "zzz"[:phase%2]+secret), phase%2, 4)
		f[fmt.Sprint("groups of 4, ", phase)] = grouped(fmt.Sprintf("%x", "zzz"[:phase]+secret), phase, 8)
	}
	f["C"] = strings.ReplaceAll(strings.Trim(fmt.Sprintf("%# x", secret), " "), " ", ", ")
	quoted := strconv.QuoteToASCII(secret)
	f["Go"] = quoted[1 : len(quoted)-1]
	f["base64 padded"] = strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "=")
	return f
}

// grouped returns digits in groups of n, without those of the first bytes.
func grouped(digits string, first, n int) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && i%n == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()[2*first:]
}

// open returns how many bytes of a form may be let out: what three bytes of the
// secret make, and what is before the next.
func open(secret, encoding string) int {
	n, separator := redact.HoldFrom-1, 2
	if encoding == "C" {
		separator = len(", 0x")
	}
	if encoding == "plain" {
		return n
	}
	return max(n, len(forms(secret[:n])[encoding])+separator)
}

func lowerPercent(s string) string {
	return regexp.MustCompile(`%[0-9A-F]{2}`).ReplaceAllStringFunc(s, strings.ToLower)
}

func inJSON(s string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if err := e.Encode(s); err != nil {
		panic(err)
	}
	return strings.Trim(b.String(), "\n")[1 : b.Len()-2]
}

func units(s, format string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u`+format, u)
	}
	return b.String()
}

// A decoration is what stands between the characters of a secret. Where it
// prints, out is what becomes of it.
type decoration struct {
	name    string
	between func(i int, next string) string
	out     func(i int, next string) string
	prints  bool // characters that are none of the secret
}

// strayFrom is from how many bytes on such a character is held with what is before
// it.
const strayFrom = 8

func always(s string) func(int, string) string { return func(int, string) string { return s } }

func every(n int, s string) func(int, string) string {
	return func(i int, _ string) string {
		if i%n == n-1 {
			return s
		}
		return ""
	}
}

func decorations() []decoration {
	d := []decoration{
		{name: "none", between: always("")},
		{name: "colours", between: always("\x1b[1;38;5;196m")},
		{name: "private CSI", between: always("\x1b[?25l\x1b[ q")},
		{name: "positions", between: every(7, "\x1b[12;1H")},
		{name: "title", between: always("\x1b]0;a title\a")},
		{name: "link", between: always("\x1b]8;;https://example.com\x1b\\")},
		{name: "DCS", between: always("\x1bPq#0;2;0\x1b\\")},
		{name: "APC", between: always("\x1b_Gf=24;AAAA\x1b\\")},
		{name: "charset", between: always("\x1b(B\x0f")},
		{name: "8-bit CSI", between: always("\u009b31m")},
		{name: "8-bit CSI, one byte", between: always("\x9b31m")},
		{name: "8-bit OSC", between: always("\u009d0;t\u009c")},
		{name: "unfinished CSI", between: always("\x1b[3\x1b[0m")},
		{name: "aborted CSI", between: always("\x1b[38;5\x18")},
		{name: "C0", between: always("\x00\x07\x0e\x0f")},
		{name: "DEL", between: always("\x7f")},
		{name: "invalid", between: always("\xff")},
		{name: "LF", between: always("\n")},
		{name: "tab", between: always("\t")},
		{name: "line editor", between: every(5, " \r"), prints: true},
		{name: "line editor, wide", between: every(5, " \x1b[K"), prints: true},
		{name: "line editor, wide, 0", between: every(7, " \x1b[1m\x1b[0K"), prints: true},
		{name: "coloured", between: every(1, "\x1b[01;31m\x1b[K")},
		{name: "indented", between: func(i int, _ string) string {
			if i%9 == 8 {
				return "\r\n    "
			}
			return ""
		}, prints: true},
		{name: "continued", between: every(11, "\\\r\n"), prints: true},
		{name: "marks", between: always("\u0301\u0308"), out: always("")},
		{name: "format", between: always("\u00ad\u034f\u061c\u180e\u2028\u202e\u2066\ufe0f\U000e0001\U0001d173"), out: always("")},
		{name: "CR", between: every(1, "\r")},
		{name: "erased", between: always("#\b"), out: always("*\b"), prints: true},
		{name: "erased wide", between: always("€\b"), out: always("*\b"), prints: true},
		{name: "echoed erasure", between: always("#\b \b"), out: nil, prints: true},
		{name: "underlined", between: func(int, string) string { return "_\b" }, out: always("*\b"), prints: true},
		{name: "overstruck", between: func(_ int, next string) string { return next + "\b" }, out: always("*\b"), prints: true},
	}
	for _, n := range []int{1, 2, 3, 4, 5, 7, 11} {
		d = append(d, decoration{name: fmt.Sprint("CR LF at ", n), between: every(n, "\r\n")})
	}
	return append(d, widths(20, 50, 80, 200)...)
}

// widths returns what hard line ends and line editors do at a width.
func widths(columns ...int) []decoration {
	var d []decoration
	for _, n := range columns {
		d = append(d, decoration{name: fmt.Sprint("width ", n), between: every(n, "\r\n")},
			decoration{name: fmt.Sprint("width and line editor ", n), between: every(n, " \r"), prints: true})
	}
	return d
}

// decorate returns the form with the decoration inside, and what it is to become.
func (d decoration) decorate(form string) (in, masked string) {
	var a, b strings.Builder
	i := 0
	for _, r := range form {
		if r < ' ' { // a newline in a secret
			a.WriteRune(r)
			b.WriteRune(r)
			continue
		}
		if i > 0 {
			s := d.between(i-1, string(r))
			a.WriteString(s)
			if s != "" && d.out != nil {
				s = d.out(i-1, string(r))
			}
			b.WriteString(s)
		}
		a.WriteRune(r)
		b.WriteByte('*')
		i++
	}
	return a.String(), b.String()
}

var chunkings = map[string]func(i, left int) int{
	"whole":  func(_, left int) int { return left },
	"bytes":  func(int, int) int { return 1 },
	"uneven": func(i, left int) int { return min(left, 1+i*7%5) },
	"halves": func(_, left int) int { return (left + 1) / 2 },
}

func write(r *redact.Stream, text string, chunk func(i, left int) int) (out string, valid bool) {
	var all []byte
	valid = true
	for i := 0; len(text) > 0; i++ {
		n := chunk(i, len(text))
		from := len(all)
		all = r.Write(all, []byte(text[:n]))
		valid = valid && utf8.Valid(all[from:])
		text = text[n:]
	}
	return string(r.Flush(all)), valid
}

// TestEachEncodingIsMasked masks each form of secrets with each decoration
// inside, in chunks.
func TestEachEncodingIsMasked(t *testing.T) {
	for name, secret := range map[string]string{"token": token, "password": password, "key": pemKey} {
		set := compile(t, secret)
		for encoding, form := range forms(secret) {
			for _, d := range decorations() {
				checkForm(t, set, name+", "+encoding, form, open(secret, encoding), d)
			}
		}
	}
}

// TestEveryWidth wraps secrets at each width from 20 to 200, in base64 also at 76.
func TestEveryWidth(t *testing.T) {
	set := compile(t, token, pemKey)
	for n := 20; n <= 200; n++ {
		for _, d := range widths(n) {
			checkForm(t, set, "token", token, 3, d)
			checkForm(t, set, "key", pemKey, 3, d)
			checkForm(t, set, "key in base64", forms(pemKey)["base64 1"], 4, d)
			checkForm(t, set, "token in JSON", forms(token)["JSON units"], 18, d)
		}
	}
	for phase := range 57 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("!", phase) + pemKey + "some more\n"))
		var wrapped strings.Builder
		for ; len(text) > 76; text = text[76:] {
			wrapped.WriteString(text[:76] + "\r\n")
		}
		out, _ := write(set.NewStream(), wrapped.String()+text, chunkings["uneven"])
		plain, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\r\n", "", "*", "A").Replace(out))
		if err != nil || strings.Contains(string(plain), pemKey[4:12]) || strings.Contains(string(plain), "KEY") || !strings.HasSuffix(string(plain), "some more\n") {
			t.Errorf("phase %d: %q decodes to %q, %v", phase, out, plain, err)
		}
	}
}

// TestLineEditorThatPrintsAhead wraps a secret as zsh does.
func TestLineEditorThatPrintsAhead(t *testing.T) {
	for n := redact.HoldFrom; n < len(token)-1; n++ {
		in := token[:n] + token[n:n+1] + "\r" + token[n:] + "."
		for how, chunk := range chunkings {
			got, _ := write(compile(t, token).NewStream(), in, chunk)
			if strings.ContainsAny(got[3:], token) || !strings.HasSuffix(got, "*\r"+strings.Repeat("*", len(token)-n)+".") {
				t.Errorf("%s: %q became %q", how, in, got)
			}
		}
	}
}

// checkForm masks a decorated form of a secret of the set, of which the first open
// bytes may be let out.
func checkForm(t *testing.T, set *redact.Set, name, form string, open int, d decoration) {
	t.Helper()
	if d.prints {
		open = max(open, strayFrom-1)
	}
	if d.name == "CR" && strings.Contains(form, " ") {
		return // as after a line editor's space
	}
	if strings.Contains(d.name, "line editor") && strings.Contains(strings.ToLower(name), "groups") {
		return // its spaces make another form of this one
	}
	if d.name == "continued" && strings.Contains(form, `\\`) {
		return // one more there is not found
	}
	in, masked := d.decorate(form)
	text, want := "\x1b[1m> "+in+".\r\n$ ", "\x1b[1m> "+masked+".\r\n$ "
	for how, chunk := range chunkings {
		got, valid := write(set.NewStream(), text, chunk)
		if d.prints {
			got = sameFill(got, want, text)
		}
		if !agrees(got, want, text, open) {
			t.Errorf("%s, %s, %s:\n  in   %q\n  got  %q\n  want %q", name, d.name, how, text, got, want)
		}
		if utf8.ValidString(text) && !valid {
			t.Errorf("%s, %s, %s: a piece of the output is no UTF-8", name, d.name, how)
		}
	}
}

// sameFill returns got with want's spaces and backslashes: one that fills a line may
// be taken for one of the secret, and the other way round.
func sameFill(got, want, text string) string {
	runes, w := []rune(got), []rune(want)
	if len(w) != len(runes) {
		return got
	}
	i := 0
	for _, r := range text {
		if i < len(w) && (r == ' ' || r == '\\') {
			runes[i] = w[i]
		}
		i++
	}
	return string(runes)
}

// agrees compares an output with what it is to be. The first bytes of a secret
// may have been let out.
func agrees(got, want, text string, open int) bool {
	if got == want {
		return true
	}
	leading := 0
	in, out := shown(text), shown(got)
	if len([]rune(in)) != len([]rune(out)) {
		return false
	}
	a, b, w := []rune(in), []rune(out), []rune(shown(want))
	for i := range a {
		switch {
		case b[i] == w[i]:
		case b[i] == a[i] && leading+len(string(a[i])) <= open:
			leading += len(string(a[i]))
		default:
			return false
		}
	}
	return true
}

var (
	strings7 = regexp.MustCompile("(?:\x1b[]P_^X]|\u009d)[^\x07\x1b\u009c]*(?:\x07|\x1b\\\\|\u009c)")
	sequence = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-Z\\\\^-~]|(?:\x1b\\[|\u009b)[0-?]*[ -/]*")
)

// shown returns what a terminal shows of text, apart from where.
func shown(text string) string {
	var b strings.Builder
	for i, r := range text {
		if r == utf8.RuneError && text[i] == 0x9b {
			r = 0x9b
		}
		b.WriteRune(r)
	}
	text = b.String()
	text = sequence.ReplaceAllString(strings7.ReplaceAllString(text, ""), "")
	text = regexp.MustCompile(" \r([^\n])").ReplaceAllString(text, "$1")
	var out []rune
	for _, r := range text {
		switch {
		case r == '\b' && len(out) > 0:
			out = out[:len(out)-1]
		case r < ' ', r == 0x7f, r == utf8.RuneError, r >= 0x80 && r < 0xa0:
		case unicode.In(r, widthless...):
		default:
			out = append(out, r)
		}
	}
	return string(out)
}
