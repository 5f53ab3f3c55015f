package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// maxBatch bounds the commands that wait for one fsync.
const maxBatch = 4096

// A batch is the records of commands that one fsync puts on disk. One of its
// waiters commits it, the others wait for that one.
type batch struct {
	// Guarded by the ledger's mu until the commit begins.
	lines []byte
	ids   []protocol.CommandID

	lead chan struct{} // capacity 1: its receiver commits
	done chan struct{} // closed when err is set
	err  error
}

// full returns why no more may wait. Called with mu held.
func (l *Ledger) full() error {
	if l.collecting != nil && len(l.collecting.ids) >= maxBatch {
		return protocol.Errorf(protocol.KindTooMany, "too many commands at the same time")
	}
	return nil
}

// join adds rec to the next commit. Called with mu held.
func (l *Ledger) join(rec record) *batch {
	if l.collecting == nil {
		l.collecting = &batch{lead: make(chan struct{}, 1), done: make(chan struct{})}
	}
	b := l.collecting
	b.lines = append(b.lines, encodeRecord(rec)...)
	b.ids = append(b.ids, rec.ID)
	return b
}

// await returns once b is committed, by the caller if nobody else does it. It
// is called with mu held, and unlocks it.
func (l *Ledger) await(b *batch) error {
	if l.committing {
		l.mu.Unlock()
		select {
		case <-b.done:
			return b.err
		case <-b.lead:
		}
		l.mu.Lock()
	}
	l.committing, l.collecting = true, nil
	lines := b.lines
	l.mu.Unlock()

	err := l.commit(lines)

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range b.ids {
		e := l.entries[id]
		if err != nil {
			delete(l.entries, id) // on disk or not, it doesn't run
			close(e.ended)
			continue
		}
		e.commit = nil
	}
	b.err = err
	close(b.done)
	l.committing = l.collecting != nil
	if l.committing {
		l.collecting.lead <- struct{}{} // one of the waiters takes over
	}
	return err
}

// commit puts lines on disk. While it runs nothing else replaces the journal,
// so it syncs the one it wrote.
func (l *Ledger) commit(lines []byte) error {
	if err := l.room(int64(len(lines))); err != nil {
		return refusal(err)
	}
	l.disk.Lock()
	err := l.put(lines)
	journal := l.journal
	l.disk.Unlock()
	if err != nil {
		return refusal(err)
	}
	// Results may be written during the sync.
	if err := journal.Sync(); err != nil {
		// After a failed fsync the kernel may have dropped any earlier
		// record, so nothing can be promised until the next Open.
		l.disk.Lock()
		defer l.disk.Unlock()
		if l.broken == nil {
			l.broken = err
		}
		return refusal(err)
	}
	return nil
}

// append writes one record without an fsync.
func (l *Ledger) append(rec record) error {
	l.disk.Lock()
	defer l.disk.Unlock()
	line := encodeRecord(rec)
	if l.size+int64(len(line)) > maxJournalBytes {
		return errCrowded
	}
	if err := l.put(line); err != nil {
		return refusal(err)
	}
	return nil
}

var (
	// errSuperseded says that another process took over the directory.
	errSuperseded = protocol.Errorf(protocol.KindSuperseded, "another process took over this state directory")
	errNotOpen    = errors.New("the journal is not open")
	errCrowded    = protocol.Errorf(protocol.KindTooMany, "too many commands within their lifetime")
)

// refusal returns err as callers should see it: with its own kind, or as a
// journal that can't be written.
func refusal(err error) error {
	if e := (*protocol.Error)(nil); errors.As(err, &e) {
		return e
	}
	refused := protocol.Fault(protocol.KindUnavailable, fmt.Errorf("ledger: %w", err))
	switch {
	case errors.Is(err, errDamaged):
		refused.Message = "commands are refused: the ledger is damaged"
	case full(err):
		refused.Message = "commands are refused: the disk is full"
	}
	return refused
}

// note records how an attempt to write ended. Called with disk held.
func (l *Ledger) note(err error) {
	l.trouble = err
	if errors.Is(err, errSuperseded) || errors.Is(err, errDamaged) {
		l.broken = err
	}
}

// put writes lines. Called with disk held.
func (l *Ledger) put(lines []byte) error {
	if l.broken != nil {
		return l.broken
	}
	if l.journal == nil {
		return cmp.Or(l.trouble, errNotOpen)
	}
	err := l.dir.locked(func() error {
		return l.owned(func() error { return l.write(lines) })
	})
	l.note(err)
	return err
}

// owned runs fn if the journal is this process's. Called with disk held, and
// the directory locked.
func (l *Ledger) owned(fn func() error) error {
	replaced, err := l.journal.Replaced()
	if err != nil {
		return err
	}
	if replaced {
		return errSuperseded
	}
	return fn()
}

// write appends lines to the journal. It is called with disk held.
func (l *Ledger) write(lines []byte) error {
	if l.torn {
		// Records after half a record would be unreadable.
		if err := l.journal.Truncate(l.size); err != nil {
			return err
		}
	}
	if _, err := l.journal.Write(lines); err != nil {
		l.torn = true
		return errors.Join(err, l.repair())
	}
	l.torn = false
	l.size += int64(len(lines))
	return nil
}

// repair removes half a record, as the next write or Open otherwise would. It
// is called with disk held.
func (l *Ledger) repair() error {
	if err := l.journal.Truncate(l.size); err != nil {
		return err
	}
	l.torn = false
	return nil
}

// room compacts a journal that has outgrown its live entries, to make room for
// n bytes.
func (l *Ledger) room(n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.disk.Lock()
	defer l.disk.Unlock()
	if l.broken != nil {
		return l.broken
	}
	if l.size+n > l.compactAt {
		err := l.dir.locked(func() error { return l.owned(l.compact) })
		l.note(err)
		if err != nil {
			return err
		}
	}
	if l.size+n > maxJournalBytes {
		return errCrowded
	}
	return nil
}

// retry checks whether a failed disk accepts writes again. Called with mu held
// and no commit under way, which a new journal would take from under it.
func (l *Ledger) retry() {
	l.disk.Lock()
	defer l.disk.Unlock()
	if l.broken == nil && l.trouble != nil {
		l.note(l.dir.locked(func() error { return l.owned(l.compact) }))
	}
}

// ready opens a journal that couldn't be opened before. Called with mu held.
func (l *Ledger) ready() error {
	if !l.opened {
		l.open()
	}
	l.disk.Lock()
	defer l.disk.Unlock()
	switch {
	case l.broken != nil:
		return refusal(l.broken)
	case !l.opened:
		return refusal(l.trouble)
	}
	return nil
}

// open takes the directory over, which supersedes another process's ledger.
// Called with mu held.
func (l *Ledger) open() {
	l.disk.Lock()
	defer l.disk.Unlock()
	if l.broken != nil {
		return
	}
	err := l.dir.locked(func() error {
		if err := l.load(); err != nil {
			return err
		}
		return l.compact()
	})
	l.note(err)
	l.opened = err == nil
}

// load fills entries from the journal on disk. Commands that another process
// was running become unknown. It is called with mu held.
func (l *Ledger) load() error {
	horizon, recs, err := l.dir.readJournal()
	if err != nil {
		return err
	}
	l.horizon = max(l.horizon, horizon)
	ended := make(chan struct{})
	close(ended)
	for _, rec := range recs {
		e := l.entries[rec.ID]
		switch {
		case rec.Op == opBegin:
			l.entries[rec.ID] = &entry{
				Entry: Entry{State: StateUnknown}, digest: [32]byte(rec.Digest),
				expires: time.UnixMilli(rec.Expires), ended: ended,
			}
		case e == nil:
		case rec.Op == opFinish:
			e.Entry = Entry{State: StateDone, Result: rec.Result}
		case rec.Op == opNoted:
			e.noted = true
		}
	}
	return nil
}

// forget drops entries past their retention. Called with mu held.
func (l *Ledger) forget() {
	before := l.now().Add(-Retention)
	for id, e := range l.entries {
		if e.commit == nil && e.State != StateRunning && e.expires.Before(before) {
			l.horizon = max(l.horizon, e.expires.UnixMilli())
			delete(l.entries, id)
		}
	}
}

// compact drops entries past their retention and replaces the journal by one
// that holds the others. The new journal begins with the horizon of the dropped
// ones. A running command is never dropped. Called with mu and disk held, and
// the directory locked.
func (l *Ledger) compact() error {
	l.forget()
	data := header(l.horizon)
	for id, e := range l.entries {
		if e.commit != nil {
			continue // its batch writes it
		}
		data = append(data, encodeRecord(record{Op: opBegin, ID: id, Digest: e.digest[:], Expires: e.expires.UnixMilli()})...)
		switch {
		case e.State == StateDone:
			data = append(data, encodeRecord(record{Op: opFinish, ID: id, Result: e.Result})...)
		case e.noted:
			data = append(data, encodeRecord(record{Op: opNoted, ID: id})...)
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
	l.journal, l.size, l.torn = journal, int64(len(data)), false
	l.compactAt = max(minCompactBytes, 2*l.size)
	return nil
}
