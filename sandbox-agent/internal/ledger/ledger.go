// Package ledger remembers on disk which commands have run, so that none runs
// twice, and numbers the agent's dials.
//
// A command's id is on disk before the command runs. Its result follows when
// it is done; a result that a crash took leaves the entry "unknown", which is
// reported and never run again.
package ledger

import (
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
// have moved by another.
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
}

// Ledger is the durable memory of one agent. It is safe for concurrent use,
// and for two processes that share a directory by mistake: the one that opened
// it last owns it, the other's commands are refused as superseded.
type Ledger struct {
	// Static after construction.
	dir *directory
	now func() time.Time

	mu sync.Mutex
	// Guarded by mu.
	entries   map[protocol.CommandID]*entry
	journal   journalFile
	size      int64 // bytes of whole records in journal
	compactAt int64 // size at which expired entries are dropped
	broken    error // why the journal can't be written any more
}

// Open reads the ledger in dir, which it creates (0700) when missing, and
// drops entries past their retention. A journal that is damaged, other than
// by a write that a crash cut short, is an error: without it no command may
// run.
func Open(dir string, now func() time.Time) (*Ledger, error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{dir: d, now: now, entries: make(map[protocol.CommandID]*entry)}
	err = d.locked(func() error {
		if err := l.load(); err != nil {
			return err
		}
		return l.compact()
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ledger: %w", err), l.Close())
	}
	return l, nil
}

// Close releases the ledger's files. What runs stays "running" on disk and is
// unknown to the next Open.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = os.ErrClosed
	err := l.dir.close()
	if l.journal != nil {
		err = errors.Join(err, l.journal.Close())
		l.journal = nil
	}
	return err
}

// Begin records that the command id is about to run. When it returns nil, nil
// the record is on disk and the caller must run the command and call
// [Ledger.Finish]. A non-nil Entry means that the id was begun before: nothing
// must run. Digest identifies the command's content; another content under the
// same id fails with KindConflict. Any other error means that the record is
// not safe, so nothing must run either: KindTooMany when too much is
// remembered, KindSuperseded when another process took the directory over,
// KindUnavailable when the journal can't be written.
func (l *Ledger) Begin(id protocol.CommandID, digest [32]byte, expires time.Time) (*Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if prior, err := l.find(id, digest); prior != nil || err != nil {
		return prior, err
	}
	rec := record{Op: opBegin, ID: id, Digest: digest[:], Expires: expires.UnixMilli()}
	if err := l.append(rec, true); err != nil {
		return nil, err
	}
	l.entries[id] = &entry{
		Entry: Entry{State: StateRunning}, digest: digest, expires: expires, ended: make(chan struct{}),
	}
	return nil, nil
}

// Lookup returns what is known of the command id, nil when it was never begun
// or is forgotten. Like Begin it fails with KindConflict on another digest.
func (l *Ledger) Lookup(id protocol.CommandID, digest [32]byte) (*Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(id, digest)
}

// find is called with mu held.
func (l *Ledger) find(id protocol.CommandID, digest [32]byte) (*Entry, error) {
	e := l.entries[id]
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
	defer l.mu.Unlock()
	e := l.entries[id]
	if e == nil || e.State != StateRunning {
		return protocol.Errorf(protocol.KindInternal, "command is not running")
	}
	defer close(e.ended)
	if len(result) > MaxResultBytes {
		e.State = StateUnknown
		return protocol.Errorf(protocol.KindTooLarge, "result of %d bytes", len(result))
	}
	e.State, e.Result = StateDone, append([]byte{}, result...)
	// No fsync: should the machine die now, the command is unknown, not rerun.
	return l.append(record{Op: opFinish, ID: id, Result: e.Result}, false)
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

// NextGeneration raises the stored generation by one and returns it, once it
// is safe on disk.
func (l *Ledger) NextGeneration() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next uint64
	err := l.dir.locked(func() error {
		stored, err := l.dir.readGeneration()
		if err != nil {
			return err
		}
		next = stored + 1
		return l.dir.replace(generationName, fmt.Appendf(nil, "%d\n", next))
	})
	if err != nil {
		return 0, fmt.Errorf("ledger: generation: %w", err)
	}
	return next, nil
}

// errSuperseded says that the directory belongs to another process now.
var errSuperseded = protocol.Errorf(protocol.KindSuperseded, "another process took over this state directory")

// append writes one record, and syncs it when it must be safe on return. It is
// called with mu held.
func (l *Ledger) append(rec record, sync bool) error {
	if l.broken != nil {
		return refusal(l.broken)
	}
	line := encodeRecord(rec)
	err := l.dir.locked(func() error {
		replaced, err := l.journal.Replaced()
		if err != nil {
			return err
		}
		if replaced {
			l.broken = errSuperseded
			return l.broken
		}
		if err := l.makeRoom(int64(len(line))); err != nil {
			return err
		}
		return l.write(line, sync)
	})
	if err != nil {
		return refusal(err)
	}
	return nil
}

// refusal returns err as callers should see it: with the kind it has, or as
// a journal that can't be written.
func refusal(err error) error {
	if e := (*protocol.Error)(nil); errors.As(err, &e) {
		return e
	}
	return protocol.Fault(protocol.KindUnavailable, fmt.Errorf("ledger: %w", err))
}

// makeRoom compacts a journal that has outgrown its live entries.
func (l *Ledger) makeRoom(n int64) error {
	if l.size+n > l.compactAt {
		if err := l.compact(); err != nil {
			return err
		}
	}
	if l.size+n > maxJournalBytes {
		return protocol.Errorf(protocol.KindTooMany, "too many commands within their lifetime")
	}
	return nil
}

func (l *Ledger) write(line []byte, sync bool) error {
	if _, err := l.journal.Write(line); err != nil {
		// A cut record would hide those after it.
		if undo := l.journal.Truncate(l.size); undo != nil {
			l.broken = errors.Join(err, undo)
		}
		return err
	}
	l.size += int64(len(line))
	if !sync {
		return nil
	}
	if err := l.journal.Sync(); err != nil {
		// After a failed fsync the kernel may have dropped any earlier
		// record, so nothing can be promised until the next Open.
		l.broken = err
		return err
	}
	return nil
}

// load fills entries from the journal on disk. What was running in another
// process is unknown here.
func (l *Ledger) load() error {
	recs, err := l.dir.readJournal()
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	close(ended)
	for _, rec := range recs {
		switch rec.Op {
		case opBegin:
			l.entries[rec.ID] = &entry{
				Entry: Entry{State: StateUnknown}, digest: [32]byte(rec.Digest),
				expires: time.UnixMilli(rec.Expires), ended: ended,
			}
		case opFinish:
			if e := l.entries[rec.ID]; e != nil {
				e.Entry = Entry{State: StateDone, Result: rec.Result}
			}
		}
	}
	return nil
}

// compact drops entries past their retention and replaces the journal by one
// that holds the others. A running command is never dropped.
func (l *Ledger) compact() error {
	forget := l.now().Add(-Retention)
	var data []byte
	for id, e := range l.entries {
		if e.State != StateRunning && e.expires.Before(forget) {
			delete(l.entries, id)
			continue
		}
		data = append(data, encodeRecord(record{Op: opBegin, ID: id, Digest: e.digest[:], Expires: e.expires.UnixMilli()})...)
		if e.State == StateDone {
			data = append(data, encodeRecord(record{Op: opFinish, ID: id, Result: e.Result})...)
		}
	}
	if err := l.dir.replace(journalName, data); err != nil {
		return err
	}
	journal, err := l.dir.openJournal()
	if err != nil {
		l.broken = err // the old file is no longer the journal
		return err
	}
	if l.journal != nil {
		if err := l.journal.Close(); err != nil {
			return errors.Join(err, journal.Close())
		}
	}
	l.journal, l.size = journal, int64(len(data))
	l.compactAt = max(minCompactBytes, 2*l.size)
	return nil
}
