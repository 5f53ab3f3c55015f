// Package pace decides when a terminal may be read: no faster than its
// pace-setters take the output, and not far ahead of a lost tunnel. It is a
// pure state machine; callers pass the time and the log's head.
package pace

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// caughtUp is the lag below which a pace-setter has caught up.
	caughtUp = protocol.MaxPaceLag / 2
	// minProgress is what a lagging pace-setter must take within
	// protocol.SlowAfter.
	minProgress = protocol.MinPaceRate * int64(protocol.SlowAfter) / int64(time.Second)
)

// A Stream names one stream of a terminal, uniquely in the terminal's life. 0
// is none.
type Stream uint64

// A Gate holds a terminal's pace-setters and lost streams. The zero Gate has
// none and is open. It is not safe for concurrent use.
type Gate struct {
	setters []setter // at most protocol.MaxPacers
	orphans []orphan
}

// A setter is a pace-setter.
type setter struct {
	protocol.Pacer
	stream Stream    // the one that reports it; 0: it is absent
	until  time.Time // when an absent one is removed
	slow   bool      // holds nothing back until it has caught up

	// Progress is measured from when it fell too far behind until it has caught
	// up. since is zero while it isn't measured.
	since time.Time
	from  uint64
}

// An orphan is left by a lost stream: output from sent on waits for the next.
type orphan struct {
	sent  uint64
	until time.Time
}

// Set reports that the pace-setter id, on stream, has everything before offset,
// which is not beyond head. If another stream reported it before, it moves to
// this one. It does nothing and returns false for a new one beyond
// protocol.MaxPacers.
func (g *Gate) Set(stream Stream, id string, offset, head uint64, now time.Time) bool {
	g.expire(now)
	s := g.find(id)
	if s == nil {
		if len(g.setters) >= protocol.MaxPacers {
			return false
		}
		g.setters = append(g.setters, setter{Pacer: protocol.Pacer{ID: id}, stream: stream})
		s = &g.setters[len(g.setters)-1]
	}
	if s.stream != stream {
		s.stream, s.until, s.since = stream, time.Time{}, time.Time{}
	}
	s.Offset = min(offset, head)
	if behind(head, s.Offset) < caughtUp {
		s.slow, s.since = false, time.Time{}
	}
	return true
}

// Gone removes the pace-setter id. It does nothing unless stream is the one
// that reports it.
func (g *Gate) Gone(stream Stream, id string) {
	g.setters = slices.DeleteFunc(g.setters, func(s setter) bool { return s.ID == id && s.stream == stream })
}

// Leave notes that stream has ended. Its remaining pace-setters keep their
// place for protocol.ControlGrace.
func (g *Gate) Leave(stream Stream, now time.Time) {
	for i := range g.setters {
		if s := &g.setters[i]; s.stream == stream {
			s.stream, s.until, s.since = 0, now.Add(protocol.ControlGrace), time.Time{}
		}
	}
}

// Lose notes that stream has ended with its tunnel, which had taken the output
// before sent. Besides the effect of [Gate.Leave], the rest waits for the next
// tunnel, for protocol.ControlGrace.
func (g *Gate) Lose(stream Stream, sent uint64, now time.Time) {
	g.Leave(stream, now)
	g.orphans = append(g.orphans, orphan{sent, now.Add(protocol.ControlGrace)})
}

// Found notes that there is a tunnel again, so that nothing waits for one.
func (g *Gate) Found() { g.orphans = nil }

// Pacers returns the pace-setters, absent and slow ones too.
func (g *Gate) Pacers(now time.Time) []protocol.Pacer {
	g.expire(now)
	var all []protocol.Pacer
	for _, s := range g.setters {
		all = append(all, s.Pacer)
	}
	return all
}

// MayRead reports whether a terminal whose log ends at head may be read. A no
// holds until another method is called or [Gate.Deadline] has come.
func (g *Gate) MayRead(head uint64, now time.Time) bool {
	if len(g.setters)+len(g.orphans) == 0 {
		return true
	}
	g.expire(now)
	may := true
	for i := range g.setters {
		if g.setters[i].holds(head, now) {
			may = false
		}
	}
	for _, o := range g.orphans {
		if behind(head, o.sent) >= protocol.MaxUnsent {
			may = false
		}
	}
	return may
}

// Deadline returns when MayRead must be asked again for a terminal that may not
// be read at head. It is false if nothing holds the terminal back.
func (g *Gate) Deadline(head uint64) (time.Time, bool) {
	var first time.Time
	earlier := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	for _, s := range g.setters {
		switch {
		case s.slow || behind(head, s.Offset) < protocol.MaxPaceLag:
		case s.stream == 0:
			earlier(s.until)
		default:
			earlier(s.since.Add(protocol.SlowAfter))
		}
	}
	for _, o := range g.orphans {
		if behind(head, o.sent) >= protocol.MaxUnsent {
			earlier(o.until)
		}
	}
	return first, !first.IsZero()
}

// holds reports whether s keeps the terminal from being read, and measures its
// progress meanwhile.
func (s *setter) holds(head uint64, now time.Time) bool {
	if s.slow || behind(head, s.Offset) < protocol.MaxPaceLag {
		return false
	}
	switch {
	case s.stream == 0: // can't move; until ends it
	case s.since.IsZero():
		s.since, s.from = now, s.Offset
	case now.Sub(s.since) < protocol.SlowAfter:
	case int64(s.Offset-s.from) < minProgress: // also when it went back
		s.slow, s.since = true, time.Time{}
		return false
	default:
		s.since, s.from = now, s.Offset
	}
	return true
}

// expire removes what has waited long enough.
func (g *Gate) expire(now time.Time) {
	g.setters = slices.DeleteFunc(g.setters, func(s setter) bool { return s.stream == 0 && !now.Before(s.until) })
	g.orphans = slices.DeleteFunc(g.orphans, func(o orphan) bool { return !now.Before(o.until) })
}

func (g *Gate) find(id string) *setter {
	for i := range g.setters {
		if g.setters[i].ID == id {
			return &g.setters[i]
		}
	}
	return nil
}

// behind returns how many bytes before head a reader at offset lacks.
func behind(head, offset uint64) uint64 {
	if offset > head {
		return 0
	}
	return head - offset
}
