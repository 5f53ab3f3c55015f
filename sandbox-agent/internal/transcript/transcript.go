// Package transcript keeps what a terminal has printed, masked: a log in
// memory, on disk what its window no longer holds, and the positions of its
// followers inside the agent.
package transcript

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// A Transcript is one terminal's. It is safe for concurrent use. Only methods
// that remove files wait.
type Transcript struct {
	// Static after construction.
	name  string       // of the terminal, on disk
	store *spill.Store // nil: what the window drops is lost
	logs  *slog.Logger

	mu sync.Mutex
	// Guarded by mu.
	log       *bytelog.Log
	printed   time.Time // when output was last appended
	readers   map[chan struct{}]struct{}
	followers map[*Follower]struct{}
	spilled   *spill.File   // what the window no longer holds; nil: nothing is kept
	stale     []*spill.File // of earlier epochs, to be removed
}

// New returns an empty transcript of the terminal id. With a store, what its
// window drops is kept on disk once Spill runs.
func New(id protocol.PTYID, cols, rows int, store *spill.Store, logs *slog.Logger) *Transcript {
	t := &Transcript{
		name: string(id), store: store, logs: logs,
		log:       bytelog.New(newEpoch(), protocol.LogWindowBytes),
		readers:   make(map[chan struct{}]struct{}),
		followers: make(map[*Follower]struct{}),
	}
	t.log.Resize(cols, rows)
	return t
}

// Append adds output, if any, and wakes the readers.
func (t *Transcript) Append(p []byte) {
	if len(p) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.printed = time.Now()
	t.log.Append(p)
	t.wakeAll()
}

// Resize records a new size at the head.
func (t *Transcript) Resize(cols, rows int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.Resize(cols, rows)
	t.wakeAll()
}

// Exit records the program's end, as [bytelog.Log.Exit] does.
func (t *Transcript) Exit(code int, signal string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log.Exit(code, signal)
	t.wakeAll()
}

// Replace drops all that the transcript holds and begins a new epoch with
// first. Followers continue there. DropSpilled removes what is on disk.
func (t *Transcript) Replace(first []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.log
	t.log = bytelog.New(newEpoch(), protocol.LogWindowBytes)
	t.log.Resize(old.SizeAt(old.Head()))
	t.log.Append(first)
	if exited, ok := old.Exited(); ok {
		t.log.Exit(exited.Code, exited.Signal)
	}
	for f := range t.followers {
		f.cursor = bytelog.Cursor{}
	}
	if t.spilled != nil {
		t.stale = append(t.stale, t.spilled)
		t.spilled = t.store.Create(t.name, t.log.Epoch())
	}
	t.wakeAll()
}

// wakeAll wakes all readers of the log. The caller holds mu.
func (t *Transcript) wakeAll() {
	for c := range t.readers {
		wake(c)
	}
	for f := range t.followers {
		wake(f.Wake)
	}
}

// wake sends to c, which has room for 1 element, unless it is full.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has yet to look
	}
}

// Listen wakes c at each change of the log, until Forget.
func (t *Transcript) Listen(c chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers[c] = struct{}{}
}

// Forget ends what Listen began.
func (t *Transcript) Forget(c chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, c)
}

// Open returns where a reader that was at since begins, and the state of the
// log: at since if the log still holds it, else where a newcomer begins.
func (t *Transcript) Open(since *protocol.Position) (bytelog.Cursor, protocol.TerminalOpened) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var cursor bytelog.Cursor
	resumed := false
	if since != nil && since.Epoch == t.log.Epoch() {
		var err error
		cursor, err = t.log.CursorAt(since.Offset)
		resumed = err == nil
	}
	if !resumed {
		cursor = t.lineStart()
	}
	opened := protocol.TerminalOpened{
		Epoch: t.log.Epoch(), Offset: cursor.Offset(), Head: t.log.Head(), Gap: since != nil && !resumed,
	}
	opened.Cols, opened.Rows = t.log.SizeAt(opened.Offset)
	if exited, ok := t.log.Exited(); ok {
		opened.Exited = &exited
	}
	return cursor, opened
}

// Newcomer returns where a reader that has seen nothing begins.
func (t *Transcript) Newcomer() bytelog.Cursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lineStart()
}

// lineStart is Newcomer. The caller holds mu.
func (t *Transcript) lineStart() bytelog.Cursor {
	return t.cursorAt(t.log.LineStart(protocol.MaxReplayBytes))
}

// End returns a cursor after everything in the log except the program's end.
func (t *Transcript) End() bytelog.Cursor {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cursorAt(t.log.Head())
}

// cursorAt returns a cursor at an offset that the log holds. The caller holds
// mu.
func (t *Transcript) cursorAt(offset uint64) bytelog.Cursor {
	cursor, err := t.log.CursorAt(offset)
	if err != nil {
		panic("transcript: a place outside the log: " + err.Error()) // impossible: callers take it from the log
	}
	return cursor
}

// Epoch returns the name of the present log.
func (t *Transcript) Epoch() protocol.Epoch {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.Epoch()
}

// Place returns the epoch and the end of its log.
func (t *Transcript) Place() (protocol.Epoch, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.Epoch(), t.log.Head()
}

// Head returns where the log ends.
func (t *Transcript) Head() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.Head()
}

// Held returns how many bytes the log holds in memory.
func (t *Transcript) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.log.Head() - t.log.Oldest())
}

// Size returns the size that is in force.
func (t *Transcript) Size() (cols, rows int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.SizeAt(t.log.Head())
}

// SizeAt returns the size at an offset in memory.
func (t *Transcript) SizeAt(offset uint64) (cols, rows int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log.SizeAt(offset)
}

// Exited returns how the program ended, nil while it runs.
func (t *Transcript) Exited() *protocol.Exited {
	t.mu.Lock()
	defer t.mu.Unlock()
	exited, ok := t.log.Exited()
	if !ok {
		return nil
	}
	return &exited
}

// Next returns the item at cursor, of at most limit bytes, and moves the cursor
// behind it, as [bytelog.Log.Next] does. Bytes are in buf, which may have grown.
func (t *Transcript) Next(cursor *bytelog.Cursor, buf *[]byte, limit int) (bytelog.Item, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	item, ok, err := t.log.Next(cursor, limit)
	if item.Bytes != nil {
		*buf = append((*buf)[:0], item.Bytes...)
		item.Bytes = *buf
	}
	return item, ok, err
}

// Tail returns at most the last n bytes of the log.
func (t *Transcript) Tail(n int) (tail []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	head := t.log.Head()
	cursor := t.cursorAt(max(t.log.Oldest(), head-min(head, uint64(n))))
	for cursor.Offset() < head {
		item, ok, err := t.log.Next(&cursor, n)
		if !ok || err != nil {
			return nil // impossible: the log holds that
		}
		tail = append(tail, item.Bytes...)
	}
	return tail
}

// DropSpilled removes what earlier epochs left on disk.
func (t *Transcript) DropSpilled() {
	t.mu.Lock()
	stale := t.stale
	t.stale = nil
	t.mu.Unlock()
	for _, file := range stale {
		if err := file.Close(); err != nil {
			t.logs.Warn("spilled output can't be removed", "error", err)
		}
	}
}

// Discard removes all that is on disk of an ended terminal.
func (t *Transcript) Discard() {
	t.mu.Lock()
	if t.spilled != nil {
		t.stale = append(t.stale, t.spilled)
	}
	t.mu.Unlock()
	t.DropSpilled()
}

func newEpoch() protocol.Epoch {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return protocol.Epoch(binary.BigEndian.Uint64(b[:]))
}
