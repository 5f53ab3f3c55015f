package measure

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// failureCount counts the failures of one reason.
type failureCount struct {
	count   int64
	samples []string // the first ones
	kept    int      // samples ever kept, of those already handed on too
}

// A FailureSnapshot is how often something failed since the last snapshot.
type FailureSnapshot struct {
	Count   int64    `json:"count"`
	Samples []string `json:"samples,omitempty"`
}

// Fail counts a failure by its reason, a short constant phrase, and keeps the
// texts of the first five. What err says must be no secret.
func (r *Recorder) Fail(reason string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := reasonOf(r.failures, reason)
	f.count++
	if err != nil {
		f.keep(err.Error())
	}
}

// reasonOf returns the count of reason, that of all others when there are too
// many.
func reasonOf(all map[string]*failureCount, reason string) *failureCount {
	reason = printable(reason)
	f := all[reason]
	if f == nil && len(all) >= maxReasons {
		reason = otherReason
		f = all[reason]
	}
	if f == nil {
		f = new(failureCount)
		all[reason] = f
	}
	return f
}

// keep keeps a sample if there is room.
func (f *failureCount) keep(text string) {
	if f.kept < maxSamples {
		f.samples = append(f.samples, printable(text))
		f.kept++
	}
}

// takeFailures returns what was counted since the last call. Reasons stay known
// so that samples are kept only once.
func takeFailures(all map[string]*failureCount) map[string]FailureSnapshot {
	var taken map[string]FailureSnapshot
	for reason, f := range all {
		if f.count == 0 {
			continue
		}
		if taken == nil {
			taken = make(map[string]FailureSnapshot)
		}
		taken[reason] = FailureSnapshot{f.count, f.samples}
		f.count, f.samples = 0, nil
	}
	return taken
}

// failuresOf returns the counts in the order of their frequency.
func failuresOf(all map[string]*failureCount) []Failure {
	failures := make([]Failure, 0, len(all))
	for _, reason := range slices.Sorted(maps.Keys(all)) {
		failures = append(failures, Failure{reason, all[reason].count, all[reason].samples})
	}
	slices.SortStableFunc(failures, func(a, b Failure) int { return cmp.Compare(b.Count, a.Count) })
	return failures
}

// printable returns text without what could move a terminal's cursor, cut to
// maxSampleBytes.
func printable(text string) string {
	text = text[:min(len(text), maxSampleBytes)]
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}
