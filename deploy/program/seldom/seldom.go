// Package seldom limits how often the same thing is logged, so that a client that
// sends rubbish doesn't fill the disk.
package seldom

import (
	"sync"
	"time"
)

// Interval is the least time between two lines about the same thing.
const Interval = 10 * time.Second

// A Limit counts things that happen by sort, of which there are few. Its zero
// value is ready, and safe for concurrent use.
type Limit[Sort comparable] struct {
	mu     sync.Mutex
	recent map[Sort]line // guarded by mu
}

// A line is when a sort was last logged, and how often it happened since.
type line struct {
	logged time.Time
	count  int64
}

// Happened counts one thing. When a line is due it returns how many things that
// line stands for, this one included, else 0.
func (l *Limit[Sort]) Happened(sort Sort, now time.Time) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recent == nil {
		l.recent = map[Sort]line{}
	}
	last, known := l.recent[sort]
	last.count++
	if known && now.Sub(last.logged) < Interval {
		l.recent[sort] = last
		return 0
	}
	l.recent[sort] = line{logged: now}
	return last.count
}
