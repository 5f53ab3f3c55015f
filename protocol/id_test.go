package protocol

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// newIDs returns one new id of every type.
func newIDs() []string {
	return []string{
		string(NewSandboxID()), string(NewSessionID()), string(NewPTYID()), string(NewUserID()),
		string(NewCommandID()), string(NewTraceID()), string(NewGrantID()), string(NewRelayID()),
	}
}

func TestNewIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		for _, id := range newIDs() {
			_, random, _ := strings.Cut(id, "_")
			if !ValidID(id) || len(random) != 26 || strings.Trim(random, "abcdefghijklmnopqrstuvwxyz234567") != "" {
				t.Fatalf("%q is not an id that we would make", id)
			}
			if seen[id] {
				t.Fatalf("%q twice", id)
			}
			seen[id] = true
		}
	}
}

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "Z": true, "0": true, "a_-9": true, "A" + strings.Repeat("-", 127): true,
		"": false, "_a": false, "-a": false, "a" + strings.Repeat("a", 128): false,
		"a b": false, "a/b": false, "../a": false, "a\n": false, "a\x00": false, "é": false, "a.b": false, "a:b": false,
	} {
		if got := ValidID(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

func TestParsePosition(t *testing.T) {
	for s, want := range map[string]Position{
		"0000000000000000:0":                   {},
		"00000000000000ff:18":                  {0xff, 18},
		"ffffffffffffffff:9223372036854775807": {math.MaxUint64, math.MaxInt64},
	} {
		if got, err := ParsePosition(s); err != nil || got != want || got.String() != s {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", ":", "0:0", "0000000000000000", "0000000000000000:", ":0", "000000000000000g:0", "00000000000000000:0",
		"0000000000000000:-1", "0000000000000000:+1", "0000000000000000:1.0", "0000000000000000: 1",
		"0000000000000000:0x1", "0000000000000000:1_0", "0000000000000000:9223372036854775808",
		"0000000000000000:1:2", "+000000000000001:0", "0x00000000000001:0", "0000000000000000:" + strings.Repeat("9", 1000),
	} {
		p, err := ParsePosition(s)
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindInvalid {
			t.Errorf("%.40q: %v, %v", s, p, err)
		}
		if err != nil && len(err.Error()) > 100 {
			t.Errorf("%.40q: the error repeats the input", s)
		}
	}
}
