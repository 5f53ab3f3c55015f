// Package pace decides when a terminal may be read: no faster than those who
// set its pace take the output, and not far ahead of a tunnel that was lost. It
// is a pure state machine; callers pass the time and the log's head.
package pace

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// caughtUp is the lag below which a pace-setter has caught up.
	caughtUp = protocol.MaxPaceLag / 2
	// minProgress is what a pace-setter that is behind must take within
	// protocol.SlowAfter.
	minProgress = protocol.MinPaceRate * int64(protocol.SlowAfter) / int64(time.Second)
)

// A Stream names one stream of a terminal for as long as the terminal lives. 0
// names none.
type Stream uint64

// A Gate holds a terminal's pace-setters and the streams that it lost. The zero
// Gate has none and is open. It is not safe for concurrent use.
type Gate struct {
	setters []setter // at most protocol.MaxPacers
	orphans []orphan
}

// A setter is a pace-setter.
type setter struct {
	protocol.Pacer
	stream Stream    // that reports it; 0: it is absent
	until  time.Time // when an absent one loses its place
	slow   bool      // it holds nothing back before it has caught up

	// Progress is measured from the moment at which it was too far behind,
	// until it has caught up. since is zero when it isn't measured.
	since time.Time
	from  uint64
}

// An orphan is what a lost stream left: output from sent on waits for the next.
type orphan struct {
	sent  uint64
	until time.Time
}

// Set says that the pace-setter id, whom stream reports, has everything before
// offset, which is not beyond head. One that was reported by another stream is
// this one's from now on. It reports false, and does nothing, for a new one
// beyond protocol.MaxPacers.
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

// Gone says that the pace-setter id holds nothing back any more. It does
// nothing unless stream is the one that reports it.
func (g *Gate) Gone(stream Stream, id string) {
	g.setters = slices.DeleteFunc(g.setters, func(s setter) bool { return s.ID == id && s.stream == stream })
}

// Leave says that stream has ended. Those of its pace-setters who are not gone
// keep their place for protocol.ControlGrace.
func (g *Gate) Leave(stream Stream, now time.Time) {
	for i := range g.setters {
		if s := &g.setters[i]; s.stream == stream {
			s.stream, s.until, s.since = 0, now.Add(protocol.ControlGrace), time.Time{}
		}
	}
}

// Lose says that stream has ended with its tunnel, which had taken the output
// before sent: in addition to what [Gate.Leave] does, the rest waits for the
// next tunnel, for protocol.ControlGrace.
func (g *Gate) Lose(stream Stream, sent uint64, now time.Time) {
	g.Leave(stream, now)
	g.orphans = append(g.orphans, orphan{sent, now.Add(protocol.ControlGrace)})
}

// Found says that a tunnel is there again: nothing waits for one any more.
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
// stands until something else happens or [Gate.Deadline] has come.
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

// Deadline returns when a terminal that may not be read at head, by the last
// answer of [Gate.MayRead], may be read unless something else happens first, or
// when that has to be looked at again. It is false when nothing holds it back.
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
// progress while it does.
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

// expire forgets what has waited long enough.
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

// behind returns how much of the output before head somebody at offset lacks.
func behind(head, offset uint64) uint64 {
	if offset > head {
		return 0
	}
	return head - offset
}
