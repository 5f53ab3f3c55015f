package history

import "time"

// A change is told when its file has been quiet for quietFor, and at the latest
// after tellAfter (seed 002).
const (
	quietFor  = 500 * time.Millisecond
	tellAfter = 2 * time.Second
)

// Settling are things that have changed and may change again. It has no clock.
type settling[K comparable] struct{ changes map[K]span }

// A span is the first and the last change of one thing.
type span struct{ first, last time.Time }

func (s span) due() time.Time {
	due := s.last.Add(quietFor)
	if latest := s.first.Add(tellAfter); latest.Before(due) {
		return latest
	}
	return due
}

// touch notes a change.
func (s *settling[K]) touch(k K, now time.Time) {
	if s.changes == nil {
		s.changes = make(map[K]span)
	}
	at, known := s.changes[k]
	if !known {
		at.first = now
	}
	at.last = now
	s.changes[k] = at
}

// drop forgets changes.
func (s *settling[K]) drop(which func(K) bool) {
	for k := range s.changes {
		if which(k) {
			delete(s.changes, k)
		}
	}
}

// take returns what is to be told by now, and when to come back; never: nothing
// waits.
func (s *settling[K]) take(now time.Time) (due []K, next time.Time, waits bool) {
	for k, at := range s.changes {
		switch when := at.due(); {
		case !when.After(now):
			due = append(due, k)
			delete(s.changes, k)
		case !waits || when.Before(next):
			next, waits = when, true
		}
	}
	return due, next, waits
}
