package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
)

// ownerName is the file that the owner of a directory holds open: whoever
// replaces it takes the directory over.
const ownerName = "owner"

// errSuperseded says that the log belongs to another process now.
var errSuperseded = protocol.Errorf(protocol.KindSuperseded, "another process took over this state directory")

// A target is the file that is written.
type target interface {
	Write(p []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

// A writer puts records on disk. Owned by the log's run.
type writer struct {
	options Options
	opened  audit.Opened
	log     *Log
	wrap    func(target) target // for tests; nil: as it is

	dir   *os.File // carries the lock that orders processes; nil: not opened yet
	owner *os.File
	file  target
	size  int64 // of whole records in file
	torn  bool  // half a record may stand behind size
	chain audit.Chain

	pending  []byte    // encoded, in the chain, and not in the file yet
	unsigned int       // records without a head behind them
	due      time.Time // of the next head
	head     protocol.AuditHead
	sig      []byte // of head
	failed   bool
	over     bool  // superseded
	closed   error // what Close returns
}

// rest returns how long the writer may sleep unless there is more to do.
func (w *writer) rest() time.Duration {
	switch {
	case w.over:
		return math.MaxInt64
	case w.failed:
		return retryDelay
	case w.unsigned > 0:
		return max(time.Until(w.due), 0)
	}
	return math.MaxInt64
}

// turn writes what waits, and a head when it is due. After a failure what was
// encoded is kept, and nothing more is taken until it is written.
func (w *writer) turn() error {
	err := w.attempt()
	w.failed = err != nil
	if w.over = w.over || errors.Is(err, errSuperseded); w.over {
		w.pending, w.unsigned = nil, 0
		w.log.take()
		return errSuperseded
	}
	return err
}

func (w *writer) attempt() error {
	if w.over {
		return errSuperseded
	}
	if w.file == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	for _, r := range w.log.take() {
		w.add(r)
		if w.unsigned >= headRecords {
			if err := w.sign(); err != nil {
				return err
			}
		}
	}
	if w.unsigned > 0 && time.Until(w.due) <= 0 {
		if err := w.sign(); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	if w.size >= w.options.MaxFileBytes {
		return w.rotate()
	}
	return nil
}

// add encodes r.
func (w *writer) add(r audit.Record) {
	w.pending = w.chain.Append(w.pending, r)
	w.count()
}

func (w *writer) count() {
	if w.unsigned == 0 {
		w.due = time.Now().Add(headDelay)
	}
	w.unsigned++
}

// sign encodes a head, unless there is nothing new to vouch for.
func (w *writer) sign() error {
	if w.unsigned == 0 {
		return nil
	}
	var err error
	w.pending, w.head, w.sig, err = w.chain.AppendHead(w.pending, w.options.Sandbox, w.options.Now(), w.options.Device.Sign)
	if err != nil {
		return err
	}
	w.unsigned = 0
	return nil
}

// flush writes what is encoded.
func (w *writer) flush() error {
	if len(w.pending) == 0 {
		return nil
	}
	err := w.locked(func() error {
		if w.torn {
			if err := w.file.Truncate(w.size); err != nil {
				return err
			}
		}
		_, err := w.file.Write(w.pending)
		w.torn = err != nil
		return err
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	w.size += int64(len(w.pending))
	w.pending = nil
	w.publish()
	return nil
}

// publish tells of the newest head, which is in the file now.
func (w *writer) publish() {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	w.log.head, w.log.signature = w.head, w.sig
}

// sync puts what is in the file on disk.
func (w *writer) sync() error {
	if w.file == nil {
		return errors.New("no file is open")
	}
	return w.file.Sync()
}

// rotate ends the file with a head and begins the next one.
func (w *writer) rotate() error {
	if err := w.sign(); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil { // for the next head vouches for it as well
		return err
	}
	return w.begin("")
}

// begin makes a new file. After says why it doesn't go on where the last one
// ended.
func (w *writer) begin(after string) error {
	next := w.chain // the log's, once the file is there
	o := w.opened
	var first []byte
	if after != "" {
		o.After = after
		first = next.AppendBreak(nil, w.options.Now(), o)
	} else {
		first = next.Append(nil, audit.Record{At: w.options.Now().UnixMilli(), Opened: &o})
	}
	path := filepath.Join(w.options.Dir, audit.FileName(next.Last()))
	return w.locked(func() error {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		if err := w.start(file, first); err != nil {
			return errors.Join(err, file.Close(), os.Remove(path))
		}
		w.chain, w.size = next, int64(len(first))
		w.count()
		w.prune()
		return nil
	})
}

// start makes file the one that is written.
func (w *writer) start(file *os.File, first []byte) error {
	var t target = file
	if w.wrap != nil {
		t = w.wrap(t)
	}
	if _, err := t.Write(first); err != nil {
		return err
	}
	if err := w.dir.Sync(); err != nil { // a head in it may be known elsewhere before its name is safe
		return err
	}
	if w.file != nil {
		w.file.Close()
	}
	w.file = t
	return nil
}

// prune removes the oldest files above the limit.
func (w *writer) prune() {
	names, err := w.names()
	for ; err == nil && len(names) > w.options.MaxFiles; names = names[1:] {
		err = os.Remove(filepath.Join(w.options.Dir, names[0]))
		w.options.Logger.Info("old audit file removed", "file", names[0])
	}
	if err != nil {
		w.options.Logger.Warn("old audit files stay", "err", err)
	}
}

// names returns the log's files, the oldest first.
func (w *writer) names() ([]string, error) {
	entries, err := os.ReadDir(w.options.Dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ok := audit.FileSequence(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // which orders them by number up to 16 digits
	return names, nil
}

// locked runs fn while no other process is within locked, unless another one
// owns the directory.
func (w *writer) locked(fn func() error) error {
	if err := flock(w.dir, unix.LOCK_EX); err != nil {
		return err
	}
	defer func() {
		if err := flock(w.dir, unix.LOCK_UN); err != nil {
			w.options.Logger.Warn("audit directory stays locked", "err", err)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(w.owner.Fd()), &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return errSuperseded
	}
	return fn()
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// open takes the directory over and goes on with its newest file.
func (w *writer) open() error {
	if err := w.own(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for {
		names, err := w.names()
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if len(names) == 0 {
			return w.begin("")
		}
		newest := names[len(names)-1]
		again, err := w.resume(newest)
		if err != nil {
			return fmt.Errorf("audit: %s: %w", newest, err)
		}
		if !again {
			return nil
		}
	}
}

// own makes the directory this process's.
func (w *writer) own() error {
	if w.owner != nil {
		return nil
	}
	if w.dir == nil {
		if err := os.MkdirAll(w.options.Dir, 0o700); err != nil {
			return err
		}
		dir, err := os.Open(w.options.Dir)
		if err != nil {
			return err
		}
		w.dir = dir
	}
	path := filepath.Join(w.options.Dir, ownerName)
	if err := flock(w.dir, unix.LOCK_EX); err != nil {
		return err
	}
	defer func() {
		if err := flock(w.dir, unix.LOCK_UN); err != nil {
			w.options.Logger.Warn("audit directory stays locked", "err", err)
		}
	}()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	owner, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.owner = owner
	return nil
}

// resume goes on with the file called name. It reports whether there was
// nothing in it, so that the one before is the newest.
func (w *writer) resume(name string) (again bool, err error) {
	path := filepath.Join(w.options.Dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	first, _ := audit.FileSequence(name)
	at := audit.Resume(data, audit.Expect{Sandbox: w.options.Sandbox, Device: w.opened.Device, First: first})
	w.chain = at.Chain
	if at.Fault != nil {
		return false, w.restart(name, at.Fault)
	}
	if at.Chain.Last() == 0 {
		return true, os.Remove(path)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	if err := file.Truncate(at.Size); err != nil {
		return false, errors.Join(err, file.Close())
	}
	w.file, w.size, w.unsigned = file, at.Size, at.Unsigned
	if w.wrap != nil {
		w.file = w.wrap(file)
	}
	w.due = time.Now().Add(headDelay)
	w.add(audit.Record{At: w.options.Now().UnixMilli(), Resumed: &audit.Resumed{Dropped: at.Dropped}})
	return false, nil
}

// restart leaves a file that isn't as it was written and begins another.
func (w *writer) restart(name string, found *audit.Fault) error {
	w.options.Logger.Error("audit file is left as it is, another begins", "file", name, "err", found)
	if found.Nature != audit.Foreign { // another key or id is an operator's doing
		w.log.mu.Lock()
		w.log.damage = fmt.Errorf("audit: %s: %w", name, found)
		w.log.mu.Unlock()
	}
	return w.begin(found.Error())
}

// close writes what waits and a head, if the disk takes them.
func (w *writer) close() {
	err := w.attempt()
	if err == nil {
		err = w.sign()
	}
	if err == nil {
		err = w.flush()
	}
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
	}
	if w.owner != nil {
		w.owner.Close()
	}
	if w.dir != nil {
		w.dir.Close()
	}
	w.closed = err
}
