package web

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// refusalInterval is the least time between two lines in the log about the same
// sort of refusal: who sends rubbish must not fill the disk with it.
const refusalInterval = 10 * time.Second

// A refusalSort is one sort of refused request. There are no more of them than
// routes times kinds of errors.
type refusalSort struct {
	route string // a pattern, never what was asked for
	kind  protocol.Kind
}

// refusals counts refused requests.
type refusals struct {
	mu     sync.Mutex
	recent map[refusalSort]*refusalLine // guarded by mu
}

// A refusalLine is when a refusal was last logged, and how often it came since.
type refusalLine struct {
	logged time.Time
	count  int64
}

func newRefusals() *refusals { return &refusals{recent: make(map[refusalSort]*refusalLine)} }

// count counts a refusal at now. When it is time for a line it returns how many
// that line stands for, else 0.
func (f *refusals) count(r refusalSort, now time.Time) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := f.recent[r]
	if line == nil {
		line = &refusalLine{}
		f.recent[r] = line
	}
	line.count++
	if !line.logged.IsZero() && now.Sub(line.logged) < refusalInterval {
		return 0
	}
	n := line.count
	line.logged, line.count = now, 0
	return n
}
