package redact

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Partly returns how those of values read, in plain form, that had others of masks
// within them when these alone were masked: with an asterisk for each character
// of these. Values of which nothing else can be seen are left out, and so are
// those that have become shorter than any secret may be: some of their
// characters have several bytes.
func Partly(values, masks []string) (partial []string) {
	known := newPrefixes(masks)
	var text []byte
	for _, v := range values {
		text = known.mask(text[:0], v)
		if text != nil && len(text) >= MinSecretBytes {
			partial = append(partial, string(text))
		}
	}
	return partial
}

// prefixes finds values that a text begins with.
type prefixes struct {
	values []string // sorted, each once
	parent []int    // the longest other value that this one begins with, or -1
}

func newPrefixes(values []string) *prefixes {
	p := &prefixes{values: slices.Compact(slices.Sorted(slices.Values(values)))}
	p.parent = make([]int, len(p.values))
	last := -1
	for i, v := range p.values {
		for last >= 0 && !strings.HasPrefix(v, p.values[last]) {
			last = p.parent[last]
		}
		p.parent[i] = last
		last = i
	}
	return p
}

// longest returns the number of bytes of the longest value that text begins with,
// or of the longest but text itself.
func (p *prefixes) longest(text string, butItself bool) int {
	i, exact := slices.BinarySearch(p.values, text)
	switch {
	case exact && butItself:
		i = p.parent[i]
	case !exact:
		// A value that text begins with is one that the greatest before it does, too.
		for i--; i >= 0 && !strings.HasPrefix(text, p.values[i]); {
			i = p.parent[i]
		}
	}
	if i < 0 {
		return 0
	}
	return len(p.values[i])
}

// mask appends value, without what a terminal doesn't show, with asterisks for
// the other values in it. It returns nil if there are none, or nothing is left.
func (p *prefixes) mask(dst []byte, value string) []byte {
	hidden, some, left := 0, false, false // hidden is where a value in it ends
	for i := 0; i < len(value); {
		r, n := utf8.DecodeRuneInString(value[i:])
		hidden = max(hidden, i+p.longest(value[i:], i == 0))
		switch {
		case unicode.IsControl(r) || unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case i < hidden:
			dst, some = append(dst, '*'), true
		default:
			dst, left = append(dst, value[i:i+n]...), left || r != ' '
		}
		i += n
	}
	if !some || !left {
		return nil
	}
	return dst
}
