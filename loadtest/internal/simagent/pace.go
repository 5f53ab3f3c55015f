package simagent

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// pollPace is how often a writer that is held back looks again.
const pollPace = 20 * time.Millisecond

// A pace is who holds a terminal back. The terminal's mutex guards it.
type pace struct {
	setters map[string]*setter

	// A tunnel was lost at this offset while somebody watched: until then output
	// waits for another one.
	lostAt uint64
	until  time.Time
}

// A setter is a viewer that the terminal waits for.
type setter struct {
	stream *attachment // nil: its stream has ended without its leave
	left   time.Time   // when
	offset uint64
	slow   bool      // it is not waited for until it has caught up
	since  time.Time // it holds the terminal back since then; zero: it doesn't
	from   uint64    // where it was then
}

// mayWrite reports whether nobody holds the terminal back.
func (t *terminal) mayWrite(now time.Time) bool {
	head, p := t.log.Head(), &t.pace
	if now.Before(p.until) && head >= p.lostAt+protocol.MaxUnsent {
		return false
	}
	free := true
	for id, s := range p.setters {
		if s.stream == nil && now.Sub(s.left) > protocol.ControlGrace {
			delete(p.setters, id)
			continue
		}
		if s.holdsBack(head, now) {
			free = false
		}
	}
	return free
}

// holdsBack reports whether the terminal has to wait for s.
func (s *setter) holdsBack(head uint64, now time.Time) bool {
	if head < s.offset+protocol.MaxPaceLag {
		s.slow, s.since = false, time.Time{}
		return false
	}
	if s.slow {
		return false
	}
	if s.since.IsZero() {
		s.since, s.from = now, s.offset
	}
	if waited := now.Sub(s.since); waited >= protocol.SlowAfter {
		s.slow = float64(s.offset-s.from) < protocol.MinPaceRate*waited.Seconds()
		s.since, s.from = now, s.offset
	}
	return !s.slow
}

// set notes where a pace-setter is.
func (t *terminal) setPace(a *attachment, m protocol.Pace) {
	p := &t.pace
	s := p.setters[m.ID]
	switch {
	case m.Gone:
		if s != nil {
			delete(p.setters, m.ID)
		}
	case s == nil && len(p.setters) >= protocol.MaxPacers:
		return
	case s == nil:
		if p.setters == nil {
			p.setters = make(map[string]*setter)
		}
		p.setters[m.ID] = &setter{stream: a, offset: min(m.Offset, t.log.Head())}
	default:
		s.stream, s.offset = a, max(s.offset, min(m.Offset, t.log.Head()))
	}
	t.took()
}

// leave notes that a stream has ended; lost says that its tunnel has.
func (t *terminal) leave(a *attachment, lost bool, now time.Time) {
	for _, s := range t.pace.setters {
		if s.stream == a {
			s.stream, s.left = nil, now
		}
	}
	if lost {
		t.pace.lostAt, t.pace.until = a.cursor.Offset(), now.Add(protocol.ControlGrace)
	}
	t.took()
}

// pacers lists who holds the terminal back.
func (t *terminal) pacers(now time.Time) []protocol.Pacer {
	var list []protocol.Pacer
	for id, s := range t.pace.setters {
		if s.stream == nil && now.Sub(s.left) > protocol.ControlGrace {
			continue
		}
		list = append(list, protocol.Pacer{ID: id, Offset: s.offset})
	}
	return list
}
