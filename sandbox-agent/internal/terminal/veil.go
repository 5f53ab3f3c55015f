package terminal

import (
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const (
	// maxFormerBytes bounds the values that are remembered after they are no
	// secrets any more, for what was printed while they were.
	maxFormerBytes = 64 << 10
	// largeBytes is from how many bytes of values on a set takes memory that is
	// worth giving back when it goes.
	largeBytes = 64 << 10
	// freeAfter is how long to wait for that: what uses the old set stops, and
	// another change may follow.
	freeAfter = time.Second
)

// change notes that values are the secrets now, and returns the sets of what is
// left of them where others were masked. The caller holds changing.
func (s *secrets) change(values []string) []*redact.Set {
	gone := append(s.former, s.values...)
	if max(bytesOf(values), bytesOf(s.values)) >= largeBytes {
		s.freeLater()
	}
	s.values = slices.Compact(slices.Sorted(slices.Values(values)))
	gone = slices.DeleteFunc(gone, func(v string) bool {
		_, again := slices.BinarySearch(s.values, v)
		return again
	})
	for size := bytesOf(gone); size > maxFormerBytes; gone = gone[1:] {
		size -= len(gone[0])
	}
	s.former = slices.Clone(gone)
	s.veiled = nil
	present := veil(s.values, s.values)
	if len(s.former) > 0 {
		if all := veil(s.values, slices.Concat(s.values, s.former)); !slices.Equal(all, present) {
			s.veiled = append(s.veiled, compileVeiled(all))
		}
	}
	if len(present) > 0 {
		s.veiled = append(s.veiled, compileVeiled(present))
	}
	return s.veiled
}

// compileVeiled compiles what veil returned, which is within all bounds.
func compileVeiled(veiled []string) *redact.Set {
	set, err := redact.Compile(veiled)
	if err != nil {
		panic("terminal: parts of secrets that are no secrets: " + err.Error()) // veil has seen to that
	}
	return set
}

func bytesOf(values []string) (n int) {
	for _, v := range values {
		n += len(v)
	}
	return n
}

// freeLater has memory that is no longer used given back to the system. The
// caller holds changing.
func (s *secrets) freeLater() {
	if s.free == nil {
		s.free = time.AfterFunc(freeAfter, debug.FreeOSMemory)
		return
	}
	s.free.Reset(freeAfter)
}

// stopFreeing leaves memory as it is. The caller holds changing.
func (s *secrets) stopFreeing() {
	if s.free != nil {
		s.free.Stop()
	}
}

// veil returns how those of values read, in plain form, that had others of masks
// within them when these alone were masked: with an asterisk for each character
// of these. Values of which nothing else can be seen are left out, and so are
// those that have become shorter than any secret may be: some of their
// characters have several bytes.
func veil(values, masks []string) (veiled []string) {
	known := newPrefixes(masks)
	var text []byte
	for _, v := range values {
		text = known.veil(text[:0], v)
		if text != nil && len(text) >= redact.MinSecretBytes {
			veiled = append(veiled, string(text))
		}
	}
	return veiled
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

// veil appends value, without what a terminal doesn't show, with asterisks for
// the other values in it. It returns nil if there are none, or nothing is left.
func (p *prefixes) veil(dst []byte, value string) []byte {
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
