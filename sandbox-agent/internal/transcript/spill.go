package transcript

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// spillBytes is how much is written to disk at once.
const spillBytes = 64 << 10

// A spiller keeps the log on disk beyond its window. It doesn't delay the
// terminal, so a disk that is slower than the program leaves a gap.
type spiller struct {
	*Follower
	gaps int // so far
}

// Spill returns a function that keeps the log on disk, from its beginning until
// it has ended. It is called before the log has any bytes.
func (t *Transcript) Spill() (run func()) {
	s := &spiller{Follower: t.Follow(t.End())}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spilled = t.store.Create(t.name, t.log.Epoch())
	cols, rows := t.log.SizeAt(0)
	t.spilled.Resize(0, cols, rows)
	return s.run
}

// run keeps the log until it has ended.
func (s *spiller) run() {
	var before *spill.File
	for {
		item, file, ok := s.take()
		if file != before && before != nil { // a new epoch has begun
			s.transcript.DropSpilled()
		}
		before = file
		switch {
		case !ok:
			<-s.Wake
		case item.Exited != nil:
			return
		case item.Resized != nil:
			file.Resize(item.Offset, item.Resized.Cols, item.Resized.Rows)
		default:
			file.Append(item.Offset, item.Bytes)
		}
	}
}

// take returns the next item to keep and its file, false if there is none now.
// After a gap the item is the size there.
func (s *spiller) take() (Item, *spill.File, bool) {
	t := s.transcript
	t.mu.Lock()
	defer t.mu.Unlock()
	item, ok, err := s.next(spillBytes)
	if err == nil {
		return item, t.spilled, ok
	}
	if s.gaps++; s.gaps == 1 {
		t.logs.Warn("output is missing on disk, which is slower than the program")
	}
	oldest := t.log.Oldest()
	s.cursor = t.cursorAt(oldest)
	cols, rows := t.log.SizeAt(oldest)
	return Item{Offset: oldest, Resized: &protocol.Resized{Offset: oldest, Cols: cols, Rows: rows}}, t.spilled, true
}

// Spilled returns where the part on disk ends.
func (t *Transcript) Spilled() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spilled.Head()
}
