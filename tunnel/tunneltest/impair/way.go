package impair

import (
	"sync"
	"time"
)

// A Counts says what has become of a link's datagrams.
type Counts struct {
	Up   DirectionCounts `json:"up"`
	Down DirectionCounts `json:"down"`

	Peers   int   `json:"peers"`   // who send, now
	Refused int64 `json:"refused"` // datagrams of more peers than there may be
}

// A DirectionCounts says what has become of the datagrams of one direction.
// Received is Passed + Lost + Full + Blackholed.
type DirectionCounts struct {
	Received      int64 `json:"received"`
	ReceivedBytes int64 `json:"received_bytes"`
	Passed        int64 `json:"passed"` // sent, or under way
	PassedBytes   int64 `json:"passed_bytes"`
	Lost          int64 `json:"lost"`       // by chance
	Full          int64 `json:"full"`       // the queue had no room
	Blackholed    int64 `json:"blackholed"` // in a blackhole
	Duplicated    int64 `json:"duplicated"` // of those that passed
	Reordered     int64 `json:"reordered"`  // of those that passed
	Late          Late  `json:"late"`       // by how much what passed was sent too late
}

// A way is one direction of a UDP link.
type way struct {
	schedule *schedule[train]

	// Guarded by mu.
	mu     sync.Mutex
	line   *line
	counts DirectionCounts
	held   int // bytes in the schedule
}

// A train is datagrams that are sent at the same time.
type train struct {
	data    []byte
	segment int // bytes of each but the last
	send    func(data []byte, segment int)
}

func newWay(seed uint64, side Side, epoch time.Time) (*way, error) {
	s, err := newSchedule[train](epoch)
	if err != nil {
		return nil, err
	}
	return &way{schedule: s, line: newLine(seed, side)}, nil
}

func (w *way) set(p Path) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line.path = p
}

func (w *way) blackhole(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line.blackhole = on
}

func (w *way) read() DirectionCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.counts
	c.Late = w.schedule.lateOf()
	return c
}

// take decides on datagrams of segment bytes each, the last may be shorter,
// and has send called with those that pass, when they are due. It keeps
// nothing of data.
func (w *way) take(data []byte, segment int, send func([]byte, int)) {
	now := w.schedule.now()
	direct := w.schedule.idle()
	w.mu.Lock()
	var begin, end int // of data, those that go on at due
	due := now
	flush := func() {
		if begin == end {
			return
		}
		run := data[begin:end]
		if direct && due <= now {
			w.mu.Unlock()
			send(run, segment)
			w.mu.Lock()
			return
		}
		w.held += len(run)
		w.schedule.put(due, train{append([]byte(nil), run...), segment, send})
	}
	for at := 0; at < len(data); at += segment {
		next := min(at+segment, len(data))
		d := w.judge(now, next-at)
		if d.fate != passes || d.due != due || end != at || end-begin >= maxSegments*segment {
			flush()
			begin, end, due = at, at, d.due
		}
		if d.fate != passes {
			begin, end, due = next, next, now
			continue
		}
		end = next
		if d.duplicate {
			flush()
			begin, end = at, next
		}
	}
	flush()
	w.mu.Unlock()
}

// judge decides on a datagram and counts it. The caller holds mu.
func (w *way) judge(now time.Duration, size int) decision {
	d := w.line.decide(now, size)
	c := &w.counts
	c.Received++
	c.ReceivedBytes += int64(size)
	if d.fate == passes && w.held+size > maxHeld {
		d.fate = overflown
	}
	switch d.fate {
	case lost:
		c.Lost++
	case overflown:
		c.Full++
	case swallowed:
		c.Blackholed++
	case passes:
		c.Passed++
		c.PassedBytes += int64(size)
		if d.duplicate {
			c.Duplicated++
		}
		if d.reordered {
			c.Reordered++
		}
	}
	return d
}

// sendAll sends what is due.
func (w *way) sendAll(batch []train) {
	sent := 0
	for _, t := range batch {
		t.send(t.data, t.segment)
		sent += len(t.data)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held -= sent
}
