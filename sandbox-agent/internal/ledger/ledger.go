// Package ledger records on disk which commands have run, so that none runs
// twice, and numbers the agent's dials.
//
// A command's id is on disk before the command runs. Its result follows when it
// is done. If a crash takes the result, the entry is "unknown": that is
// reported, and the command never runs again.
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

// Retention is how long an entry outlives its command's expiry. A command is
// accepted within one clock skew past its expiry, and the clock may have moved
// by another. If the clock moves further, the ledger forgets too early, but see
// [Ledger.Forgotten].
const Retention = 2 * protocol.ClockSkew

// MaxResultBytes bounds a stored result.
const MaxResultBytes = protocol.MaxFramePayload

const (
	// maxJournalBytes bounds the journal. Beyond it commands are refused until
	// entries expire.
	maxJournalBytes = 64 << 20
	// minCompactBytes is the size below which the journal isn't compacted.
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

// entry is an Entry with the fields to keep it.
type entry struct {
	Entry
	digest  [32]byte
	expires time.Time
	ended   chan struct{} // closed when State is no longer running
	commit  *batch        // the batch that puts it on disk; nil: it is there
	noted   bool          // unknown, and that was recorded elsewhere
}

// Ledger is the durable memory of one agent. It is safe for concurrent use. If
// two processes share a directory by mistake, the one that opened it last owns
// it, and the other's commands are refused as superseded.
type Ledger struct {
	// Static after construction.
	dir *directory
	now func() time.Time

	// mu is taken before disk where both are needed, and never held while the
	// disk works but for a compaction.
	mu sync.Mutex
	// Guarded by mu.
	entries    map[protocol.CommandID]*entry
	horizon    int64  // the latest expiry of a forgotten command, Unix milliseconds
	collecting *batch // what the next commit takes; nil: nothing
	committing bool   // a commit is under way
	opened     bool   // entries are the journal's, and the journal is open

	// disk serializes operations on the directory.
	disk sync.Mutex
	// Guarded by disk.
	journal   journalFile // nil before opened
	size      int64       // bytes of whole records in journal
	torn      bool        // half a record may follow size
	compactAt int64       // size at which expired entries are dropped
	broken    error       // why nothing can be written any more
	trouble   error       // why the last write failed
}

// Open reads the ledger in dir, which it creates (0700) when missing, and drops
// entries past their retention. If the journal can't be read or written, is
// lost, or is damaged other than by a write that a crash cut short, the ledger
// refuses all commands and Err says why; NextGeneration works. Open fails only
// without a directory.
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

// Close releases the ledger's files. Running commands stay "running" on disk
// and are unknown to the next Open.
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

// Err returns why commands are refused, nil when they aren't. After a failed
// write it tries the disk again.
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

// Begin records that the command id is about to run. If it returns nil, nil,
// the record is on disk and the caller must run the command and call
// [Ledger.Finish]. A non-nil Entry means that the id was begun before: nothing
// must run. Digest identifies the command's content; another content under the
// same id fails with KindConflict. Any other error means that the record is not
// safe, so nothing must run either: KindTooMany when the journal is full,
// KindSuperseded when another process took the directory over, KindUnavailable
// when the journal can't be written. Concurrent calls share one fsync, and its
// failure.
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
	if err := l.full(); err != nil {
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

// Forgotten reports whether an unknown command with this expiry may still have
// run: one with the same or a later expiry is forgotten. This compares expiries
// and no clock. So a clock that was wrong for a while, and made the ledger
// forget a valid command, can't make it run again.
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
		e = l.entries[id] // gone if the disk failed
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
// may not survive this process; until this process ends, replays still get it.
// A result above MaxResultBytes is not kept: the entry is unknown.
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
	// No fsync: if the machine dies now, the command is unknown, not rerun.
	return l.append(record{Op: opFinish, ID: id, Result: kept})
}

// Wait waits until id is no longer running and returns its entry. It is for a
// caller whose Begin found it running. It fails with KindNotFound for an id
// that was never begun and with ctx's error.
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

// Lost returns the commands of earlier processes whose results were lost, until
// Noted is called for them.
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

// NextGeneration raises the stored generation by one and returns it once it is
// on disk, even a full one. The first call also makes the journal if Open
// couldn't: from then on a missing journal is a lost one.
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
