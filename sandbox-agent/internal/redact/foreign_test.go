package redact_test

import (
	"strings"
	"testing"
)

// TestProgramsEscapes masks what programs print of secrets that are not all ASCII.
func TestProgramsEscapes(t *testing.T) {
	const secret = "p\u00e4\"s's\\ $w\tx\u65e5\U0001f600"
	set := compile(t, secret)
	for program, printed := range map[string]string{
		"printf %q": `p\303\244"s\'s\\ $w\tx\346\227\245\360\237\230\200`,
		"sed l":     `p\303\244"s's\\ $w\tx\346\227\245\360\237\230\200`,
		"sed l, in lines": `p\303\244"s's\\ $w\tx\346\227\245\360\` + "\n" +
			`\237\230\200`,
		"git":               `p\303\244\"s's\\ $w\tx\346\227\245\360\237\230\200`,
		"Python's bytes":    `p\xc3\xa4"s\'s\\ $w\tx\xe6\x97\xa5\xf0\x9f\x98\x80`,
		"C":                 `p\xC3\xA4\"s's\\ $w\tx\xE6\x97\xA5\xF0\x9F\x98\x80`,
		"Python's ascii":    `p\xe4"s\'s\\ $w\tx\u65e5\U0001f600`,
		"Go":                `p\u00e4\"s's\\ $w\tx\u65e5\U0001f600`,
		"Go, in upper case": `p\u00E4\"s's\\ $w\tx\u65E5\U0001F600`,
		"JSON":              `p\u00e4\"s's\\ $w\tx\u65e5\ud83d\ude00`,
		"cat -v":            "pM-CM-$\"s's\\ $w\txM-fM-^WM-%M-pM-^_M-^XM-^@",
		"less":              "p<C3><A4>\"s's\\ $w\tx<E6><97><A5><F0><9F><98><80>",
		"vim":               "p<c3><a4>\"s's\\ $w\tx<e6><97><a5><f0><9f><98><80>",
	} {
		checkPrinted(t, set, program, printed)
	}
	latin1 := compile(t, "caf\xe9-caf\xe9-caf\xe9")
	for _, printed := range []string{`caf\351-caf\351-caf\351`, `caf\xe9-caf\xe9-caf\xe9`, `cafM-i-cafM-i-cafM-i`, `caf<E9>-caf<E9>-caf<E9>`} {
		checkPrinted(t, latin1, "Latin-1", printed)
	}
}

// TestDumps masks dumps without offsets, as programs print them.
func TestDumps(t *testing.T) {
	set := compile(t, "OceBergTal-4711-Xyz")
	for program, printed := range map[string]string{
		"xxd -p":                             "4f636542657267",
		"xxd -g2":                            "4f63 6542 6572 6754 616c 2d34 3731 312d 5879 7a",
		"xxd -g2 -u, not from the beginning": "4F 6365 4265 7267 5461 6C2D 3437 3131 2D58 797A",
		"xxd -g4":                            "4f636542 65726754 616c2d34 3731312d 58797a",
		"xxd -g4, not from the beginning":    "4f6365 42657267 54616c2d 34373131 2d58797a",
		"xxd -i":                             "  0x4f, 0x63, 0x65, 0x42, 0x65, 0x72, 0x67, 0x54, 0x61, 0x6c, 0x2d, 0x34,\r\n  0x37, 0x31, 0x31, 0x2d, 0x58, 0x79, 0x7a",
		"C":                                  "0x4F, 0x63, 0x65, 0x42, 0x65, 0x72, 0x67, 0x54, 0x61, 0x6C, 0x2D, 0x34, 0x37, 0x31, 0x31, 0x2D, 0x58, 0x79, 0x7A",
		"od -An -x":                          " 634f 4265 7265 5467 6c61 342d 3137 2d31\r\n 7958",
		"od -An -x, not from the beginning":  " 6563 6542 6772 6154 2d6c 3734 3131 582d\r\n 7a79",
		"od -An -tx1":                        " 4f 63 65 42 65 72 67 54 61 6c 2d 34 37 31 31 2d\r\n 58 79 7a",
		"openssl x509":                       "        4f:63:65:42:65:72:67:54:61:6c:2d:34:37:31:31:\r\n        2d:58:79:7a",
	} {
		if program == "xxd -p" {
			printed = "4f63654265726754616c2d343731312d58797a"
		}
		checkPrinted(t, set, program, printed)
	}
}

// TestIndentedLines masks a key as it stands in YAML.
func TestIndentedLines(t *testing.T) {
	checkPrinted(t, compile(t, pemKey), "YAML", strings.ReplaceAll(strings.TrimSpace(pemKey), "\n", "\r\n      "))
}

// checkPrinted masks all of a text but spaces, in one piece, and in pieces all but
// its beginning.
func checkPrinted(t *testing.T, set interface{ Mask([]byte) []byte }, program, printed string) {
	t.Helper()
	if got := string(set.Mask([]byte("> " + printed + "."))); strings.Trim(got, "> .*\r\n\t\\") != "" {
		t.Errorf("%s: %q became %q", program, printed, got)
	}
}

// TestWideCharacterAtTheEdge types a secret in a line editor on narrow screens. The
// output is bash's.
func TestWideCharacterAtTheEdge(t *testing.T) {
	set := compile(t, "p\u00e4ssw\u00f6rd-XXXXXXXX-\u65e5\u672c\u8a9e", "\u65e5\u672c\u8a9e\u6f22\u5b57", "ab \u65e5\u672c\u8a9e")
	for in, want := range map[string]string{
		"P> : xxx p\u00e4ssw\u00f6rd-XXXXXXXX-\u65e5 \x1b[K\u672c\u8a9e":   "P> : xxx ******************* \x1b[K**",
		"P> : xxx xp\u00e4ssw\u00f6rd-XXXXXXXX-\u65e5 \r\u672c\u8a9e":      "P> : xxx x******************* \r**",
		"P> : xxx xxp\u00e4ssw\u00f6rd-XXXXXXXX- \x1b[K\u65e5\u672c\u8a9e": "P> : xxx xx****************** \x1b[K***",
		"P> : \u65e5 \x1b[K\u672c\u8a9e\u6f22\u5b57":                       "P> : * \x1b[K****",
		"P> : \u65e5\u672c\u8a9e \x1b[0K\u6f22\u5b57":                      "P> : *** \x1b[0K**",
		"P> : ab \x1b[01;31m\x1b[K\u65e5\u672c\u8a9e":                      "P> : ***\x1b[01;31m\x1b[K***",
		"P> : ab  \x1b[K\u65e5\u672c\u8a9e":                                "P> : *** \x1b[K***",
		"P> : \u65e5\u672c\u8a9e \x1b[1K\u6f22\u5b57.":                     "P> : \u65e5\u672c\u8a9e \x1b[1K\u6f22\u5b57.",
	} {
		if got := string(set.Mask([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		for how, chunk := range chunkings {
			got, _ := write(set.NewStream(), in, chunk)
			if !strings.HasSuffix(got, want[len(want)-2:]) {
				t.Errorf("%q, %s, became %q, want %q", in, how, got, want)
			}
		}
	}
}

// TestCharactersWithoutWidth prints secrets with such characters, and ones that
// have some.
func TestCharactersWithoutWidth(t *testing.T) {
	ignored := []rune{0xad, 0x300, 0x301, 0x34f, 0x61c, 0x115f, 0x180e, 0x200b, 0x200d, 0x2028, 0x202a, 0x202e, 0x2060, 0x2061, 0x2064,
		0x2066, 0x2069, 0x206a, 0x20dd, 0x3164, 0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0x1d173, 0xe0001, 0xe0020, 0xe0100}
	const decomposed = "pa\u0308sswo\u0308rd-e\u0301te\u0301"
	set := compile(t, token, decomposed)
	for _, r := range ignored {
		in := strings.Join(strings.Split(token, ""), string(r))
		if got := string(set.Mask([]byte(in + string(r) + "."))); got != strings.Repeat("*", len(token))+"." {
			t.Errorf("%U: %q became %q", r, in, got)
		}
	}
	for in, want := range map[string]string{
		decomposed + "!":             "************!",
		"x" + decomposed + "\u0301!": "x************!",
		strings.ReplaceAll(decomposed, "a", "a\u200b") + "\u00e4": "************\u00e4",
		"\u0301pa\u0308ss\u0301":                                  "\u0301****",
		"e\u0301te\u0301":                                         "e\u0301te\u0301",
		"p\u00e4ssw\u00f6rd-\u00e9t\u00e9":                        "p\u00e4ssw\u00f6rd-\u00e9t\u00e9",
	} {
		if got := string(set.Mask([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		for how, chunk := range chunkings {
			got, _ := write(set.NewStream(), in, chunk)
			if strings.Contains(want, "*") && strings.Contains(got, "\u00e9") || !strings.HasSuffix(got, want[len(want)-1:]) || strings.Contains(want, "*") && strings.Contains(got, "te\u0301") {
				t.Errorf("%q, %s, became %q, want %q", in, how, got, want)
			}
		}
	}
}
