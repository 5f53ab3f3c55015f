package redact

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestPartly(t *testing.T) {
	for _, c := range []struct {
		value string
		masks []string
		want  string
	}{
		{"alone-alone", []string{"alone-alone", "elsewhere"}, ""},
		{"AAAABBBBtail", []string{"AAAABBBB"}, "********tail"},
		{"AAAABBBBtail", []string{"AAAABBBB", "AAAABBBBt", "AAAABBBBtail", "AAAA"}, "*********ail"},
		{"headAAAABBBBtail", []string{"AAAABBBB", "BBBBtai"}, "head***********l"},
		{"AAAABBBBAAAABBBB", []string{"AAAABBBB"}, ""},
		{"AAAABBBB  ", []string{"AAAABBBB"}, ""},
		{"one\ntwo\nthree\nfour", []string{"two\nthree"}, "one********four"},
		{"ключ-е\u0301ключ-tail", []string{"ключ-е\u0301ключ"}, "**********-tail"},
		{"漢字漢字a", []string{"漢字漢字"}, ""}, // too short to be looked for
	} {
		want := []string{c.want}
		if c.want == "" {
			want = nil
		}
		if got := Partly([]string{c.value}, append(c.masks, c.value)); !slices.Equal(got, want) {
			t.Errorf("%q without %q: %q, want %q", c.value, c.masks, got, want)
		}
	}
}

// TestPartlyModel compares with a search for each value at each place.
func TestPartlyModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		values := make([]string, 1+random.IntN(6))
		for i := range values {
			for range 1 + random.IntN(12) {
				values[i] += string("ab"[random.IntN(2)])
			}
		}
		p := newPrefixes(values)
		for _, v := range values {
			want := []byte(v)
			for _, other := range values {
				for at := 0; other != v && at+len(other) <= len(v); at++ {
					if v[at:at+len(other)] == other {
						copy(want[at:], strings.Repeat("*", len(other)))
					}
				}
			}
			if n := bytes.Count(want, []byte("*")); n == 0 || n == len(want) {
				want = nil
			}
			if got := p.mask(nil, v); !bytes.Equal(got, want) {
				t.Fatalf("%q of %q: %q, want %q", v, values, got, want)
			}
		}
	}
}
