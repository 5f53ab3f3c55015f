package screen

import (
	"fmt"
	"strings"
	"testing"
)

// TestAppendPlain: lines as they were printed, of the screen and above it.
func TestAppendPlain(t *testing.T) {
	for printed, want := range map[string]string{
		"":                               "",
		"a\r\n\r\n  b  \r\n\r\n":         "a\n\n  b\n",
		"0123456789abc":                  "0123456789abc\n",
		"0123456789\r\nabc":              "0123456789\nabc\n", // full, and not continued
		"012345678世界":                    "012345678世界\n",     // one column is left over
		"e\u0301\x1b[1mx\x1b[0m\x1b[5Gy": "e\u0301x  y\n",
		"a\r\nb\r\nc\r\nd":               "a\nb\nc\nd\n",
		"a\x1b[?1049hb":                  " b\n",
	} {
		s := New(10, 3)
		s.Write(nil, nil, []byte(printed))
		if got := string(s.grid.AppendPlain([]byte("\n"), 10)); got != "\n"+want {
			t.Errorf("%q is %q, want %q", printed, got, "\n"+want)
		}
	}
}

// TestTakeHistory: what is taken as it leaves the screen, and the screen then,
// are all that was printed.
func TestTakeHistory(t *testing.T) {
	s := New(10, 3)
	var printed strings.Builder
	var got []byte
	for i := range 3000 {
		line := strings.Repeat("x", i%25) + fmt.Sprint(i)
		printed.WriteString(line + "\n")
		s.Write(nil, nil, []byte(line+"\r\n"))
		got = s.grid.TakeHistory(got)
	}
	if got = s.grid.AppendPlain(got, 1000); string(got) != printed.String() {
		t.Errorf("%d bytes of %d: %.200q", len(got), printed.Len(), got)
	}
}
