package account

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// IDVariable has the terminal's id, or that of a kept account, in the
// environment of all its programs.
const IDVariable = "FAIRLEAD_PTY_ID"

const (
	// keptFolder holds the kept homes. Its name is no id, so that it isn't taken
	// for a terminal's home.
	keptFolder = ".kept"
	keptHome   = "home"         // in a session's folder
	keptRecord = "account.json" // the same
	// maxRecordBytes bounds what is read of keptRecord.
	maxRecordBytes = 4096
)

// leftoverPatience bounds the wait for the end of one uid's leftovers.
const leftoverPatience = 2 * time.Second

// killEvery is how often leftover processes are killed again.
const killEvery = 50 * time.Millisecond

// A Kept is an account of a session whose home outlives it, and this program.
type Kept struct {
	Account
	ID      protocol.PTYID // like a terminal's; the same as long as the home lasts
	Session protocol.SessionID
	record  *os.File // locked while the account is in use
}

// A keptNote is the content of keptRecord.
type keptNote struct {
	ID   protocol.PTYID `json:"id"`
	UIDs []int          `json:"uids,omitempty"` // that files in the home may have
}

// KeptHome returns the kept home of session, which may not exist.
func (as *Pool) KeptHome(session protocol.SessionID) string {
	return filepath.Join(as.keptOf(session), keptHome)
}

// keptOf returns the session's folder, around the kept home. Its mode lets
// others pass only while the account is in use.
func (as *Pool) keptOf(session protocol.SessionID) string {
	return filepath.Join(as.Homes, keptFolder, string(session))
}

// Keep returns an account for session, with the home that the session's last
// account had, or else a new one. [Pool.Leave] must be called for it. It fails
// with KindConflict while the account is in use, KindInvalid for what is no id,
// and KindTooMany when no uid is free.
//
// Between Leave and Keep nobody but this program gets to the home: its uid may be
// a terminal's meanwhile.
func (as *Pool) Keep(session protocol.SessionID) (Kept, error) {
	if !protocol.ValidID(session) {
		return Kept{}, protocol.Errorf(protocol.KindInvalid, "not the id of a session")
	}
	dir := as.keptOf(session)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Kept{}, err
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		return Kept{}, err
	}
	k, note, err := as.lockKept(session)
	if err != nil {
		return Kept{}, err
	}
	if err := as.settle(&k, note); err != nil {
		return Kept{}, errors.Join(err, as.Leave(k))
	}
	return k, nil
}

// lockKept locks a session's kept account and reads its record, which it makes
// if there is none.
func (as *Pool) lockKept(session protocol.SessionID) (Kept, keptNote, error) {
	k := Kept{Account: Account{UID: -1, GID: -1, Home: as.KeptHome(session)}, Session: session}
	f, err := os.OpenFile(filepath.Join(as.keptOf(session), keptRecord), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Kept{}, keptNote{}, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = protocol.Errorf(protocol.KindConflict, "the session's account is in use")
		}
		return Kept{}, keptNote{}, errors.Join(err, f.Close())
	}
	k.record = f
	text := make([]byte, maxRecordBytes)
	n, _ := f.ReadAt(text, 0) // at the end of the file it fails
	var note keptNote
	if json.Unmarshal(text[:n], &note) != nil || !protocol.ValidID(note.ID) {
		note = keptNote{ID: protocol.PTYID("chat_" + strings.ToLower(rand.Text()))}
		if err := k.note(note); err != nil {
			return Kept{}, keptNote{}, errors.Join(err, f.Close())
		}
	}
	k.ID = note.ID
	return k, note, nil
}

// note writes the account's record, in place: it is locked.
func (k Kept) note(note keptNote) error {
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := k.record.Truncate(0); err != nil {
		return err
	}
	if _, err := k.record.WriteAt(append(text, '\n'), 0); err != nil {
		return err
	}
	return k.record.Sync()
}

// settle gives k a uid, and the home to that.
func (as *Pool) settle(k *Kept, note keptNote) error {
	if as.Own {
		last := -1
		if len(note.UIDs) > 0 {
			last = note.UIDs[len(note.UIDs)-1]
		}
		if err := as.reserve(&k.Account, last); err != nil {
			return err
		}
		before := note.UIDs
		if !slices.Contains(note.UIDs, k.UID) {
			note.UIDs = append(note.UIDs, k.UID)
		}
		if err := k.note(note); err != nil { // before a file has that uid
			return err
		}
		if err := k.own(before); err != nil {
			return fmt.Errorf("the session's home: %w", err)
		}
		note.UIDs = []int{k.UID}
		if err := k.note(note); err != nil {
			return err
		}
	} else {
		if own := os.Geteuid(); !slices.Contains(note.UIDs, own) {
			note.UIDs = append(note.UIDs, own) // should there be uids of their own one day
			if err := k.note(note); err != nil {
				return err
			}
		}
		if err := k.own(nil); err != nil {
			return fmt.Errorf("the session's home: %w", err)
		}
	}
	as.named(k.Account)
	return os.Chmod(as.keptOf(k.Session), 0o711)
}

// own makes the home, or gives those of its files to k that have one of the uids
// before. Nothing of the home's user runs, so nothing changes meanwhile.
func (k Kept) own(before []int) error {
	_, err := os.Lstat(k.Home)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := k.Account
		fresh.Home += ".new"
		if err := makeHome(fresh); err != nil {
			return err
		}
		return os.Rename(fresh.Home, k.Home)
	}
	if err != nil || k.UID < 0 || len(before) == 1 && before[0] == k.UID {
		return err
	}
	home, err := os.OpenRoot(k.Home)
	if err != nil {
		return err
	}
	defer home.Close()
	return fs.WalkDir(home.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := home.Lstat(name)
		if err != nil {
			return err
		}
		if owner := int(st.Sys().(*syscall.Stat_t).Uid); owner == k.UID || !slices.Contains(before, owner) {
			return nil
		}
		return home.Lchown(name, k.UID, k.GID)
	})
}

// Mark returns the mark that all programs of the account bear.
func (k Kept) Mark() process.Mark { return process.MarkOf(IDVariable+"="+string(k.ID), k.UID, k.GID) }

// end kills what runs as the account, and returns how much that was.
func (k Kept) end() int {
	if k.UID >= 0 {
		return killAll(func(sig syscall.Signal) int {
			return process.Signal(sig, func(s process.Stat) bool { return s.UID == k.UID })
		})
	}
	return killAll(k.Mark().Signal)
}

// killAll kills what signal signals until there is nothing left, and returns how
// much there was initially.
func killAll(signal func(syscall.Signal) int) int {
	n := signal(syscall.SIGKILL)
	end := time.Now().Add(leftoverPatience)
	for left := n; left > 0 && time.Now().Before(end); left = signal(syscall.SIGKILL) {
		<-time.After(killEvery) // killed processes need a moment to end
	}
	return n
}

// Leave ends what still runs as the account, keeps the home from everybody, and
// frees the uid for others.
func (as *Pool) Leave(k Kept) error {
	k.end()
	err := os.Chmod(as.keptOf(k.Session), 0o700)
	as.unnamed(k.Account)
	if k.lock != nil {
		err = errors.Join(err, k.lock.Close())
	}
	return errors.Join(err, k.record.Close())
}

// Forget removes a session's kept home, if there is one. It fails with
// KindConflict while the account is in use.
func (as *Pool) Forget(session protocol.SessionID) error {
	if !protocol.ValidID(session) {
		return protocol.Errorf(protocol.KindInvalid, "not the id of a session")
	}
	dir := as.keptOf(session)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	k, _, err := as.lockKept(session)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), k.record.Close())
}

// clearKept ends what a killed agent has left running as kept accounts, and
// keeps their homes from everybody. Accounts of a running agent are left alone.
func (as *Pool) clearKept(log *slog.Logger) {
	entries, err := os.ReadDir(filepath.Join(as.Homes, keptFolder))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("kept homes can't be looked for", "err", err)
		}
		return
	}
	for _, entry := range entries {
		session := protocol.SessionID(entry.Name())
		if !entry.IsDir() || !protocol.ValidID(session) {
			continue
		}
		k, _, err := as.lockKept(session)
		if err != nil {
			if protocol.KindOf(err) != protocol.KindConflict {
				log.Warn("a kept home can't be looked at", "session", session, "err", err)
			}
			continue
		}
		if !as.Own {
			if n := k.end(); n > 0 {
				log.Warn("processes of an earlier life were ended", "session", session, "processes", n)
			}
		}
		if err := errors.Join(os.Chmod(as.keptOf(session), 0o700), k.record.Close()); err != nil {
			log.Warn("a kept home can't be closed", "session", session, "err", err)
		}
	}
}
