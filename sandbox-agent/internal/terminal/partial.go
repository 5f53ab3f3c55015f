package terminal

import (
	"runtime/debug"
	"slices"
	"time"

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
	s.partial = nil
	present := redact.Partly(s.values, s.values)
	if len(s.former) > 0 {
		if all := redact.Partly(s.values, slices.Concat(s.values, s.former)); !slices.Equal(all, present) {
			s.partial = append(s.partial, compilePartial(all))
		}
	}
	if len(present) > 0 {
		s.partial = append(s.partial, compilePartial(present))
	}
	return s.partial
}

// compilePartial compiles what redact.Partly returned, which is within all bounds.
func compilePartial(partial []string) *redact.Set {
	set, err := redact.Compile(partial)
	if err != nil {
		panic("terminal: parts of secrets that are no secrets: " + err.Error()) // Partly has seen to that
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
