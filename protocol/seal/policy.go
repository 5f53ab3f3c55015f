package seal

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// MaxPatterns bounds a policy, and MaxPattern each of its patterns, in bytes.
	MaxPatterns = 10_000
	MaxPattern  = 1024
)

// A Policy says which hosts' cookies pass. The zero Policy lets all of them.
type Policy struct {
	allow  bool
	whole  map[string]bool // patterns without wildcards
	ends   map[string]bool // those that begin with their only one, %
	others []other
}

// NewPolicy returns a policy that keeps back the hosts of patterns or, if allow is
// set, all but those. It fails with kind invalid for an empty pattern, one that is
// too long, and too many.
func NewPolicy(allow bool, patterns []string) (*Policy, error) {
	if len(patterns) > MaxPatterns {
		return nil, protocol.Errorf(protocol.KindInvalid, "a policy has %d patterns at most", MaxPatterns)
	}
	p := &Policy{allow: allow, whole: map[string]bool{}, ends: map[string]bool{}}
	for i, pattern := range patterns {
		if pattern == "" || len(pattern) > MaxPattern {
			return nil, protocol.Errorf(protocol.KindInvalid, "domains[%d].pattern: 1 to %d bytes", i, MaxPattern)
		}
		pattern = lower(pattern)
		switch rest := strings.TrimLeft(pattern, "%"); {
		case strings.ContainsAny(rest, "%_"):
			p.others = append(p.others, newOther(pattern))
		case rest == pattern:
			p.whole[pattern] = true
		default:
			p.ends[rest] = true
		}
	}
	return p, nil
}

// Passes reports whether cookies of a host_key may pass. It takes time in proportion
// to the host's length, and to the number of patterns with wildcards elsewhere than
// at their beginning.
func (p *Policy) Passes(hostKey string) bool {
	return p == nil || p.matches(lower(hostKey)) == p.allow
}

func (p *Policy) matches(host string) bool {
	if p.whole[host] {
		return true
	}
	if len(p.ends) > 0 {
		for i := range len(host) + 1 {
			if p.ends[host[i:]] {
				return true
			}
		}
	}
	if len(p.others) == 0 {
		return false
	}
	has := marksOf(host)
	for i := range p.others {
		if other := &p.others[i]; other.needs.in(has) && other.glob.matches(host) {
			return true
		}
	}
	return false
}

// An other is a pattern with wildcards elsewhere than at its beginning.
type other struct {
	glob  glob
	needs marks
}

func newOther(pattern string) other {
	o := other{glob: newGlob(pattern)}
	for _, part := range o.glob {
		for piece := range strings.SplitSeq(part, "_") {
			o.needs.add(piece)
		}
	}
	return o
}

// Marks stand for the characters of a text, and for those that follow one another: two
// texts may have the same ones. What a pattern says literally its hosts have, so nearly
// all of a thousand patterns needn't be looked at further.
type marks [2]uint64

func marksOf(text string) (m marks) {
	m.add(text)
	return m
}

func (m *marks) add(text string) {
	for i := range len(text) {
		m[0] |= 1 << (text[i] % 64)
		if i > 0 {
			m[1] |= 1 << ((uint(text[i-1])*31 + uint(text[i])) % 64)
		}
	}
}

// in reports whether other has all of m.
func (m marks) in(other marks) bool { return m[0]&^other[0]|m[1]&^other[1] == 0 }

// Like reports whether s matches a pattern as in SQLite: % stands for any number of
// characters, _ for one, and ASCII letters for those of either case. Its time is in
// proportion to the lengths of both; what stands between two % and has a _ takes its
// own length times more.
func Like(pattern, s string) bool { return newGlob(lower(pattern)).matches(lower(s)) }

// A glob is a pattern, cut at each %.
type glob []string

func newGlob(pattern string) glob {
	parts := strings.Split(pattern, "%")
	if len(parts) < 3 {
		return parts
	}
	inner := slices.DeleteFunc(parts[1:len(parts)-1], func(part string) bool { return part == "" })
	return append(append(glob{parts[0]}, inner...), parts[len(parts)-1])
}

// matches finds each part as early as it is there: what follows has the most room
// then. No part is looked for twice.
func (g glob) matches(s string) bool {
	last := len(g) - 1
	n, ok := prefix(g[0], s)
	if last == 0 || !ok {
		return ok && n == len(s)
	}
	s = s[n:]
	for _, part := range g[1:last] {
		end := find(part, s)
		if end < 0 {
			return false
		}
		s = s[end:]
	}
	tail := ending(s, utf8.RuneCountInString(g[last]))
	n, ok = prefix(g[last], tail)
	return ok && n == len(tail)
}

// prefix returns how much of s a part without % takes at its beginning.
func prefix(part, s string) (n int, ok bool) {
	for i := range len(part) {
		switch {
		case n == len(s):
			return 0, false
		case part[i] == '_':
			_, width := utf8.DecodeRuneInString(s[n:])
			n += width
		case part[i] == s[n]:
			n++
		default:
			return 0, false
		}
	}
	return n, true
}

// find returns where the first place in s ends that a part takes, -1 if there is none.
func find(part, s string) int {
	if !strings.Contains(part, "_") {
		at := strings.Index(s, part)
		if at < 0 {
			return -1
		}
		return at + len(part)
	}
	for at := range s {
		if n, ok := prefix(part, s[at:]); ok {
			return at + n
		}
	}
	return -1
}

// ending returns the last characters of s, all of it if it has fewer.
func ending(s string, characters int) string {
	at := len(s)
	for range characters {
		_, width := utf8.DecodeLastRuneInString(s[:at])
		at -= width
	}
	return s[at:]
}

// lower is for ASCII alone, as SQLite's LIKE.
func lower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if 'A' <= b[i] && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
