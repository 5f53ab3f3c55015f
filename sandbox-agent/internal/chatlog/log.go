package chatlog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

var (
	// ErrEnded says that the log was deleted, or its Store or reader closed.
	ErrEnded = errors.New("chatlog: the log has ended")
	// ErrReset says that the log has begun another epoch while it was read.
	ErrReset = errors.New("chatlog: the log has begun another epoch")

	errClosed = protocol.Fault(protocol.KindUnavailable, ErrEnded)
)

// An Entry is one event of a log. It must not be changed, and may be kept.
type Entry struct {
	Seq uint64
	// Origin is the command that brought the event: of a text of role user, its
	// commandId. Empty for every other event.
	Origin protocol.CommandID
	JSON   []byte // a [protocol.ChatEvent], at most protocol.MaxChatEvent bytes
}

// A Position says what a log holds.
type Position struct {
	Epoch protocol.Epoch
	First uint64 // number of the oldest event held; Last + 1: none
	Last  uint64 // number of the newest event; 0: there never was one
}

// Covers reports whether the log holds everything that followed the event
// numbered after.
func (p Position) Covers(after uint64) bool { return after+1 >= p.First && after <= p.Last }

// A Log is the log of one conversation. It is safe for concurrent use.
type Log struct {
	// Static after construction.
	room *room
	id   protocol.ConversationID

	writing sync.Mutex // held while files are changed, before mu
	// Owned by whoever holds writing.
	opened bool
	out    *os.File // the last segment, for appending; nil: closed
	renew  bool     // the next event begins an epoch: what was written may be lost

	mu sync.Mutex
	// Guarded by mu, and changed only by whoever holds writing as well.
	epoch    protocol.Epoch
	next     uint64     // number of the next event
	segments []*segment // oldest first; never empty once opened and appended to
	ended    bool
	resets   uint64 // how many epochs have begun since the log was opened
	// Guarded by mu.
	tail      tail
	live      bool
	used      time.Time // when it was last written
	followers int
	changed   chan struct{} // closed at the next change; nil: nobody waits
}

func newLog(r *room, id protocol.ConversationID) *Log { return &Log{room: r, id: id} }

func (l *Log) folder() string { return filepath.Join(l.room.dir, string(l.id)) }

// ID returns the conversation.
func (l *Log) ID() protocol.ConversationID { return l.id }

// Position returns what the log holds now.
func (l *Log) Position() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.position()
}

// position is Position with mu held.
func (l *Log) position() Position {
	p := Position{Epoch: l.epoch, First: l.next, Last: l.next - 1}
	if len(l.segments) > 0 {
		p.First = l.segments[0].first
	}
	return p
}

// Live says whether a run is under way. Other conversations' events are dropped
// before those of a live one. A log that isn't live holds no file open, and
// nothing in memory unless it is followed.
func (l *Log) Live(on bool) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	l.live = on
	l.relax()
	l.mu.Unlock()
	if !on {
		l.closeOut()
	}
}

// relax frees the tail when nobody needs it. The caller holds mu.
func (l *Log) relax() {
	if !l.live && l.followers == 0 {
		l.tail = tail{}
	}
}

// closeOut closes the last segment. The caller holds writing.
func (l *Log) closeOut() {
	if l.out == nil {
		return
	}
	if err := l.out.Close(); err != nil {
		l.renew = true
		l.room.log.Warn("a conversation's log can't be closed", "conversation", l.id, "err", err)
	}
	l.out = nil
}

// wake wakes whoever waits for a change. The caller holds mu.
func (l *Log) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// refusal returns err as callers see it.
func refusal(err error) *protocol.Error {
	if e := (*protocol.Error)(nil); errors.As(err, &e) {
		return e
	}
	kind := protocol.KindUnavailable
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		kind = protocol.KindNoSpace
	}
	e := protocol.Fault(kind, fmt.Errorf("chatlog: %w", err))
	if kind == protocol.KindNoSpace {
		e.Message = "the disk of the sandbox is full"
	}
	return e
}

// end ends whoever follows, and closes files. The caller holds writing.
func (l *Log) end() {
	l.closeOut()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	l.room.grow(-l.size())
	l.segments, l.tail = nil, tail{}
	l.wake()
}

// size returns the bytes of the segments. The caller holds mu.
func (l *Log) size() (n int64) {
	for _, g := range l.segments {
		n += g.bytes
	}
	return n
}

// remove removes a file that may be gone.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// lineEnd ends each line of a segment.
var lineEnd = []byte("\n")

// A tail is the newest events of a log, without holes.
type tail struct {
	held  []Entry
	bytes int
}

// add adds entries, and drops the oldest beyond limit bytes.
func (t *tail) add(entries []Entry, limit int) {
	for _, e := range entries {
		t.held = append(t.held, e)
		t.bytes += len(e.JSON)
	}
	for len(t.held) > 0 && t.bytes > limit {
		t.bytes -= len(t.held[0].JSON)
		t.held[0] = Entry{} // lets the array release it
		t.held = t.held[1:]
	}
}

// at returns the event numbered seq, false if the tail begins later.
func (t *tail) at(seq uint64) (Entry, bool) {
	if len(t.held) == 0 || seq < t.held[0].Seq || seq-t.held[0].Seq >= uint64(len(t.held)) {
		return Entry{}, false
	}
	return t.held[seq-t.held[0].Seq], true
}

// renewEpoch begins another epoch. Called with writing and mu held.
func (l *Log) renewEpoch() {
	l.epoch = newEpoch()
	l.next = max(l.next, uint64(max(time.Now().UnixMilli(), 0))*1000)
	l.tail = tail{}
	l.resets++
	l.wake()
}

// newEpoch returns a random name for an epoch.
func newEpoch() protocol.Epoch {
	var random [8]byte
	rand.Read(random[:])
	return protocol.Epoch(binary.BigEndian.Uint64(random[:]))
}

// path returns where segment n is.
func (l *Log) path(n int) string {
	return filepath.Join(l.folder(), filePrefix+strconv.Itoa(n)+fileSuffix)
}

// remove ends the log and calls fn before anything can be appended.
func (l *Log) remove(fn func() error) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.end()
	return fn()
}

// close syncs the log and ends it. Its files stay.
func (l *Log) close() (err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.out != nil {
		err = l.out.Sync()
	}
	l.end()
	return err
}
