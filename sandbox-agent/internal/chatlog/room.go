package chatlog

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// errFull says that nothing more may be dropped.
var errFull = protocol.Errorf(protocol.KindNoSpace, "the conversations' logs are full")

// A disk takes what is written. In tests it may be full.
type disk interface {
	write(*os.File, []byte) error
	sync(*os.File) error
	// syncFolder makes the names in a folder outlive a crash of the machine.
	syncFolder(path string) error
}

// files is the disk of this machine.
type files struct{}

func (files) write(f *os.File, p []byte) error {
	_, err := f.Write(p)
	return err
}

func (files) sync(f *os.File) error { return f.Sync() }

func (files) syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Counts are what a [Store] has done since it was opened, and what it holds.
type Counts struct {
	Conversations   int    // that have a log
	Bytes           int64  // of all segments on disk
	Events          uint64 // appended
	EventsCut       uint64 // of them, with longer texts than an event may have
	Syncs           uint64 // of segments: what was written before outlives a crash of the machine
	DroppedSegments uint64 // of logs that were full or damaged, oldest first
	DroppedBytes    uint64 // of those
	Damaged         uint64 // segments that were put aside
	NoSpace         uint64 // appends that failed because the disk or the Store is full
}

// A member is a log that takes up room.
type member interface {
	// droppable reports whether a segment may be dropped, whether a run is under
	// way, and when the log was last written.
	droppable() (live bool, used time.Time, ok bool)
	// dropOldest drops the oldest segment.
	dropOldest() error
}

// A room is what all logs of a Store share: the folder, the bounds, and how much
// of them is taken.
type room struct {
	// Static after construction.
	dir          string
	logBytes     int64
	allBytes     int64
	segmentBytes int64
	tailBytes    int
	boot         string // names this run of the machine, "" if the kernel doesn't tell
	disk         disk
	log          *slog.Logger

	trimming sync.Mutex // held while room is made; before any log's lock

	mu sync.Mutex // taken last
	// Guarded by mu.
	members map[member]struct{}
	bytes   int64 // of all segments
	counts  Counts
}

// newRoom returns a room without bounds.
func newRoom(segmentBytes int64, tailBytes int, boot string, d disk) *room {
	return &room{segmentBytes: segmentBytes, tailBytes: tailBytes, boot: boot, disk: d, members: make(map[member]struct{})}
}

// count changes the counters.
func (r *room) count(change func(*Counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.counts)
}

// sync has what was written to a segment outlive a crash of the machine.
func (r *room) sync(f *os.File) error {
	err := r.disk.sync(f)
	if err == nil {
		r.count(func(c *Counts) { c.Syncs++ })
	}
	return err
}

// counted returns the counters.
func (r *room) counted() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.counts
	c.Bytes = r.bytes
	return c
}

// dropped counts a segment that was dropped.
func (r *room) dropped(bytes int64) {
	r.count(func(c *Counts) {
		c.DroppedSegments++
		c.DroppedBytes += uint64(bytes)
	})
}

// grow adds n bytes, which may be negative, to what is on disk.
func (r *room) grow(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes += n
}

// join and leave add a log and take it away.
func (r *room) join(m member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[m] = struct{}{}
}

func (r *room) leave(m member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, m)
}

// over reports whether the logs are too large together.
func (r *room) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes > r.allBytes
}

// trim drops the oldest segments of logs until they are no longer too large
// together: of those without a run first, the one that was last written longest
// ago. The caller holds no lock.
func (r *room) trim() {
	if !r.over() {
		return
	}
	r.trimming.Lock()
	defer r.trimming.Unlock()
	spared := make(map[member]bool)
	for r.over() {
		m := r.oldest(spared)
		if m == nil {
			return
		}
		if err := m.dropOldest(); err != nil {
			spared[m] = true
			r.log.Warn("a conversation's log can't be shortened", "err", err)
		}
	}
}

// oldest returns the log to drop a segment of, nil if there is none.
func (r *room) oldest(spared map[member]bool) (found member) {
	r.mu.Lock()
	var all []member
	for m := range r.members {
		if !spared[m] {
			all = append(all, m)
		}
	}
	r.mu.Unlock()
	var foundLive bool
	var foundUsed time.Time
	for _, m := range all {
		live, used, ok := m.droppable()
		if ok && (found == nil || foundLive && !live || foundLive == live && used.Before(foundUsed)) {
			found, foundLive, foundUsed = m, live, used
		}
	}
	return found
}
