// Package ledger remembers on disk which commands have run, so that none runs
// twice, and numbers the agent's dials.
//
// A command's id is on disk before the command runs. Its result follows when
// it is done; a result that a crash took leaves the entry "unknown", which is
// reported and never run again.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Retention is how long an entry outlives its command's expiry: a command is
// accepted within one clock skew past its time, by a clock that may itself
// have moved by another. A clock that moves further makes the ledger forget too
// early, but see [Ledger.Forgotten].
const Retention = 2 * protocol.ClockSkew

// MaxResultBytes bounds a stored result.
const MaxResultBytes = protocol.MaxFramePayload

const (
	// maxJournalBytes bounds what is remembered. Beyond it commands are
	// refused until entries expire.
	maxJournalBytes = 64 << 20
	// minCompactBytes is the size below which the journal is left to grow.
	minCompactBytes = 1 << 20
)

// A State says how far a command got.
type State string

const (
	StateRunning State = "running" // begun by this process
	StateDone    State = "done"    // Result is what it returned
	StateUnknown State = "unknown" // begun, and its result lost
)

// An Entry is what is known of a command.
type Entry struct {
	State  State
	Result []byte // set when State is StateDone; not to be changed
}

// entry is an Entry with what is needed to keep it.
type entry struct {
	Entry
	digest  [32]byte
	expires time.Time
	ended   chan struct{} // closed when State is no longer running
	commit  *batch        // with which it gets on disk; nil: it is there
	noted   bool          // unknown, and that was noted elsewhere
}

// Ledger is the durable memory of one agent. It is safe for concurrent use,
// and for two processes that share a directory by mistake: the one that opened
// it last owns it, the other's commands are refused as superseded.
type Ledger struct {
	// Static after construction.
	dir *directory
	now func() time.Time

	// mu is taken before disk where both are needed, and never held while the
	// disk works but for a compaction.
	mu sync.Mutex
	// Guarded by mu.
	entries    map[protocol.CommandID]*entry
	horizon    int64  // the latest expiry of what was forgotten, Unix milliseconds
	collecting *batch // what the next commit takes; nil: nothing
	committing bool   // somebody commits
	opened     bool   // entries are those of the journal, which is open

	// disk orders what is done to the directory.
	disk sync.Mutex
	// Guarded by disk.
	journal   journalFile // nil before opened
	size      int64       // bytes of whole records in journal
	torn      bool        // half a record may stand behind size
	compactAt int64       // size at which expired entries are dropped
	broken    error       // why nothing can be written any more
	trouble   error       // why the last attempt to write failed
}

// Open reads the ledger in dir, which it creates (0700) when missing, and
// drops entries past their retention. Where the journal is damaged, other than
// by a write that a crash cut short, is gone though there was one, or can't be
// read or written, the ledger refuses all commands and Err says why;
// NextGeneration works. Open fails when there can be no directory.
func Open(dir string, now func() time.Time) (*Ledger, error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{dir: d, now: now, entries: make(map[protocol.CommandID]*entry)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open()
	return l, nil
}

// Close releases the ledger's files. What runs stays "running" on disk and is
// unknown to the next Open.
func (l *Ledger) Close() error {
	l.disk.Lock()
	defer l.disk.Unlock()
	l.broken = os.ErrClosed
	err := l.dir.close()
	if l.journal != nil {
		err = errors.Join(err, l.journal.Close())
		l.journal = nil
	}
	return err
}

// Err returns why commands are refused, nil when they aren't. After a write
// that failed it tries the disk again.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.opened:
		l.open()
	case !l.committing: // or the commit will show it
		l.retry()
	}
	l.disk.Lock()
	defer l.disk.Unlock()
	if err := cmp.Or(l.broken, l.trouble); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// Begin records that the command id is about to run. When it returns nil, nil
// the record is on disk and the caller must run the command and call
// [Ledger.Finish]. A non-nil Entry means that the id was begun before: nothing
// must run. Digest identifies the command's content; another content under the
// same id fails with KindConflict. Any other error means that the record is
// not safe, so nothing must run either: KindTooMany when too much is
// remembered, KindSuperseded when another process took the directory over,
// KindUnavailable when the journal can't be written. Calls at the same time
// share one fsync, and its failure.
func (l *Ledger) Begin(id protocol.CommandID, digest [32]byte, expires time.Time) (*Entry, error) {
	l.mu.Lock()
	if err := l.ready(); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	if prior, err := l.find(id, digest); prior != nil || err != nil {
		l.mu.Unlock()
		return prior, err
	}
	if l.forgotten(expires) {
		l.mu.Unlock()
		return nil, ErrForgotten
	}
	if err := l.crowded(); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	b := l.join(record{Op: opBegin, ID: id, Digest: digest[:], Expires: expires.UnixMilli()})
	l.entries[id] = &entry{
		Entry: Entry{State: StateRunning}, digest: digest, expires: expires, ended: make(chan struct{}), commit: b,
	}
	return nil, l.await(b) // which unlocks
}

// ErrForgotten refuses a command that may have run before.
var ErrForgotten = protocol.Errorf(protocol.KindExpired, "command: others of its time are forgotten already, so it may have run")

// Forgotten reports whether a command with this expiry, of which nothing is
// known, may have run all the same: one that ended no earlier is forgotten. No
// clock has a say in that, so that one that was wrong for a while, and had the
// ledger forget what is still valid, doesn't have it run again.
func (l *Ledger) Forgotten(expires time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forgotten(expires)
}

// forgotten is called with mu held.
func (l *Ledger) forgotten(expires time.Time) bool { return expires.UnixMilli() <= l.horizon }

// Lookup returns what is known of the command id, nil when it was never begun
// or is forgotten. Like Begin it fails with KindConflict on another digest.
func (l *Ledger) Lookup(id protocol.CommandID, digest [32]byte) (*Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(id, digest)
}

// find is called with mu held, which it gives up while the entry it finds gets
// on disk.
func (l *Ledger) find(id protocol.CommandID, digest [32]byte) (*Entry, error) {
	e := l.entries[id]
	for e != nil && e.commit != nil {
		b := e.commit
		l.mu.Unlock()
		<-b.done
		l.mu.Lock()
		e = l.entries[id] // gone where the disk failed
	}
	if e == nil {
		return nil, nil
	}
	if e.digest != digest {
		return nil, protocol.Errorf(protocol.KindConflict, "command id was used for another command")
	}
	known := e.Entry
	return &known, nil
}

// Finish stores what the command id returned. An error means that the result
// may not survive this process; while the process lives, replays get it all
// the same. A result above MaxResultBytes is not kept: the entry is unknown.
func (l *Ledger) Finish(id protocol.CommandID, result []byte) error {
	l.mu.Lock()
	e := l.entries[id]
	if e == nil || e.State != StateRunning || e.commit != nil {
		l.mu.Unlock()
		return protocol.Errorf(protocol.KindInternal, "command is not running")
	}
	defer close(e.ended)
	if len(result) > MaxResultBytes {
		e.State = StateUnknown
		l.mu.Unlock()
		return protocol.Errorf(protocol.KindTooLarge, "result of %d bytes", len(result))
	}
	e.State, e.Result = StateDone, append([]byte{}, result...)
	kept := e.Result
	l.mu.Unlock()
	// No fsync: should the machine die now, the command is unknown, not rerun.
	return l.append(record{Op: opFinish, ID: id, Result: kept})
}

// Wait returns the entry of id once it is no longer running, for a caller
// whose Begin found it so. It fails with KindNotFound for an id that was never
// begun and with ctx's error.
func (l *Ledger) Wait(ctx context.Context, id protocol.CommandID) (Entry, error) {
	l.mu.Lock()
	e := l.entries[id]
	l.mu.Unlock()
	if e == nil {
		return Entry{}, protocol.Errorf(protocol.KindNotFound, "no such command")
	}
	select {
	case <-e.ended:
		return e.Entry, nil // unchanged from here on
	case <-ctx.Done():
		return Entry{}, ctx.Err()
	}
}

// Lost returns the commands that earlier processes began and whose results were
// lost, until Noted is called for them.
func (l *Ledger) Lost() []protocol.CommandID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost []protocol.CommandID
	for id, e := range l.entries {
		if e.State == StateUnknown && !e.noted {
			lost = append(lost, id)
		}
	}
	return lost
}

// Noted says that the loss of id's result was recorded elsewhere.
func (l *Ledger) Noted(id protocol.CommandID) error {
	l.mu.Lock()
	e := l.entries[id]
	if e == nil || e.State != StateUnknown || e.noted {
		l.mu.Unlock()
		return nil
	}
	e.noted = true
	l.mu.Unlock()
	return l.append(record{Op: opNoted, ID: id})
}

// NextGeneration raises the stored generation by one and returns it, once it
// is safe on disk, also on a full one. The first one also makes the journal, if
// Open couldn't: from then on a missing one is a lost one.
func (l *Ledger) NextGeneration() (uint64, error) {
	l.disk.Lock()
	defer l.disk.Unlock()
	var next uint64
	err := l.dir.locked(func() error {
		stored, err := l.dir.readGeneration()
		if err != nil {
			return err
		}
		if stored == 0 {
			if err := l.dir.makeJournal(); err != nil {
				return err
			}
		}
		next = stored + 1
		return l.dir.writeGeneration(next)
	})
	if err != nil {
		return 0, fmt.Errorf("ledger: generation: %w", err)
	}
	return next, nil
}
