package terminal

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// spillBytes is how much of the log goes to disk at once.
const spillBytes = 64 << 10

// A spiller keeps the log on disk beyond its window. It follows without holding
// the terminal back, so a disk that is slower than the program leaves a gap.
type spiller struct {
	follower
	gaps int // guarded by terminal.mu
}

// spillTo begins to keep the log in file. It is called before the terminal is
// read.
func (t *Terminal) spillTo(file *spill.File) {
	s := &spiller{follower: newFollower(t, t.head())}
	t.spilled, t.spiller = file, s
	file.Resize(0, t.info.Cols, t.info.Rows)
	t.follow(&s.follower, s.run)
}

// discard removes what the terminal, which is over, has on disk.
func (t *Terminal) discard() {
	t.mu.Lock()
	if t.spilled != nil {
		t.stale = append(t.stale, t.spilled)
	}
	t.mu.Unlock()
	t.dropSpilled()
}

// run keeps the log until it has ended.
func (s *spiller) run() {
	var before *spill.File
	for {
		item, file, ok := s.take()
		if file != before && before != nil { // another epoch has begun
			s.terminal.dropSpilled()
		}
		before = file
		switch {
		case !ok:
			<-s.wake
		case item.exited:
			return
		case item.resized != nil:
			file.Resize(item.offset, item.resized.Cols, item.resized.Rows)
		default:
			file.Append(item.offset, item.bytes)
		}
	}
}

// take returns what is to be kept next and in which file, false when there is
// nothing now. After a gap that is the size there.
func (s *spiller) take() (followed, *spill.File, bool) {
	t := s.terminal
	t.mu.Lock()
	defer t.mu.Unlock()
	item, ok, err := s.next(spillBytes)
	if err == nil {
		return item, t.spilled, ok
	}
	if s.gaps++; s.gaps == 1 {
		t.log.Warn("output is missing on disk, which is slower than the program")
	}
	oldest := t.output.Oldest()
	cursor, err := t.output.CursorAt(oldest)
	if err != nil {
		panic("terminal: the oldest byte is outside the log: " + err.Error()) // it never is
	}
	s.cursor = cursor
	cols, rows := t.output.SizeAt(oldest)
	return followed{offset: oldest, resized: &protocol.Resized{Offset: oldest, Cols: cols, Rows: rows}}, t.spilled, true
}
