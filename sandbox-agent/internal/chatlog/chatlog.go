// Package chatlog keeps what happened in conversations with coding agents: for
// each conversation a log of numbered events on disk.
//
// An event has one number, its seq. Numbers begin at 1, rise by one within an
// epoch, and never fall, also not across epochs and restarts: a new epoch begins
// at max(last + 1, Unix ms × 1,000). An event is on disk before anybody sees it,
// and its line there is exactly the JSON that is sent, so that a replay copies
// bytes.
//
// # On disk
//
// Below Options.Dir each conversation has a folder, named by its id, with
// segments of about 4 MiB, events-N.jsonl. The first line of a segment is a
// header: format, conversation, epoch, the number of the segment's first event,
// and the boot of the machine that wrote it. One line for each event follows.
// The folder may hold files of others.
//
// A crash of this program loses nothing that anybody has seen; half of a last
// line is cut when the log is opened. A crash of the machine may lose events
// that were not synced, so the first use after another boot begins a new epoch.
// A segment whose content is not what was written is put aside as
// events-N.jsonl.damaged, the older ones are dropped, and a new epoch begins.
//
// Who asks for it waits for an fsync of that log's file alone. File systems write
// those of several files together: where one takes 2 ms, 16 conversations that
// sync at the same time take 0.13 ms each, so nothing is grouped here.
//
// Package journal keeps logs on disk, too. It holds each log in memory and
// replaces its whole file to drop events, which suits the small logs of
// approvals. A conversation has 64 MiB, and there are many: here only the newest
// events of running conversations are in memory, all reading is a stream over
// segments, and old events go by removing a file.
package chatlog

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

const (
	segmentBytes = 4 << 20 // a segment that is longer gets no more events
	tailBytes    = 1 << 20 // of the newest events of a log, in memory
	deletedName  = "~deleted-"
)

// Options configure a Store.
type Options struct {
	Dir      string // made when missing
	Bytes    int64  // of one conversation's log; default protocol.ChatLogBytes
	AllBytes int64  // of all logs; default protocol.ChatLogsBytes
	// Log is told of damage. nil: nobody is.
	Log *slog.Logger
}

// A Store holds the logs of all conversations. It is safe for concurrent use.
type Store struct {
	room *room // static after construction

	mu sync.Mutex
	// Guarded by mu.
	logs   map[protocol.ConversationID]*Log
	closed bool
}

// Open returns the logs in o.Dir, of which it reads only the folders. It
// removes what an interrupted deletion has left.
func Open(o Options) (*Store, error) {
	return open(o, newRoom(segmentBytes, tailBytes, bootID(), files{}))
}

// open is Open with what tests may choose.
func open(o Options, r *room) (*Store, error) {
	r.dir, r.logBytes, r.allBytes, r.log = o.Dir, cmp.Or(o.Bytes, protocol.ChatLogBytes), cmp.Or(o.AllBytes, protocol.ChatLogsBytes), o.Log
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	s := &Store{room: r, logs: make(map[protocol.ConversationID]*Log)}
	if err := s.find(); err != nil {
		return nil, fmt.Errorf("chatlog: %w", err)
	}
	s.room.trim()
	return s, nil
}

// find lists the logs that there are.
func (s *Store) find() error {
	if err := os.MkdirAll(s.room.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.room.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		id := protocol.ConversationID(e.Name())
		switch {
		case strings.HasPrefix(e.Name(), deletedName):
			if err := os.RemoveAll(filepath.Join(s.room.dir, e.Name())); err != nil {
				return err
			}
		case e.IsDir() && protocol.ValidConversation(id):
			l := newLog(s.room, id)
			bytes, err := l.find()
			if err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			if bytes > 0 {
				s.mu.Lock()
				s.logs[id] = l
				s.mu.Unlock()
				s.room.join(l)
				s.room.grow(bytes)
			}
		}
	}
	return nil
}

// bootID names this run of the machine, "" if the kernel doesn't tell.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Folder returns the folder of a conversation, which may not exist. Its owner
// may keep other files in it, by names that don't begin with "events-".
func (s *Store) Folder(id protocol.ConversationID) string {
	return filepath.Join(s.room.dir, string(id))
}

// Log returns the log of a conversation, which it makes if there is none. All
// callers get the same one. It fails with KindInvalid for what is no id, and
// with KindUnavailable when the log can't be read or the Store is closed.
func (s *Store) Log(id protocol.ConversationID) (*Log, error) {
	if !protocol.ValidConversation(id) {
		return nil, protocol.Errorf(protocol.KindInvalid, "not the id of a conversation")
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	l := s.logs[id]
	if l == nil {
		l = newLog(s.room, id)
		s.logs[id] = l
		s.room.join(l)
	}
	s.mu.Unlock()
	if err := l.open(); err != nil {
		return nil, refusal(err)
	}
	return l, nil
}

// List returns the conversations that have a log, in order of their ids.
func (s *Store) List() []protocol.ConversationID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.logs))
}

// Delete removes a conversation's folder with all that is in it. Whoever
// follows or reads the log is told [ErrEnded], as is who appends to it. Deleting
// what isn't there is no error.
func (s *Store) Delete(id protocol.ConversationID) error {
	if !protocol.ValidConversation(id) {
		return protocol.Errorf(protocol.KindInvalid, "not the id of a conversation")
	}
	s.mu.Lock()
	l := s.logs[id]
	s.mu.Unlock()
	if l == nil {
		return s.removeFolder(id)
	}
	return l.remove(func() error {
		s.mu.Lock()
		delete(s.logs, id)
		s.mu.Unlock()
		s.room.leave(l)
		return s.removeFolder(id)
	})
}

// removeFolder removes a folder so that an interruption leaves nothing that
// looks like a conversation.
func (s *Store) removeFolder(id protocol.ConversationID) error {
	if at, err := os.Lstat(s.Folder(id)); err == nil && !at.IsDir() {
		return nil // somebody else's file
	}
	aside := filepath.Join(s.room.dir, deletedName+rand.Text())
	err := os.Rename(s.Folder(id), aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.RemoveAll(aside)
	}
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("chatlog: %w", err))
	}
	return nil
}

// Counts returns the counters.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	logs := len(s.logs)
	s.mu.Unlock()
	c := s.room.counted()
	c.Conversations = logs
	return c
}

// Close syncs all logs and ends their followers with [ErrEnded]. Nothing can be
// appended any more.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	logs := slices.Collect(maps.Values(s.logs))
	s.mu.Unlock()
	var errs []error
	for _, l := range logs {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}
