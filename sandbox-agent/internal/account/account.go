// Package account gives each terminal something to run as: a uid of its own where
// the agent is root, a home with the shell's start files, an entry in the list of
// users; and clears away what an earlier life of the agent has left.
package account

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/passwd"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// Locks is where agents of one machine agree who uses which uid.
const Locks = "/run/fairlead/uids"

// Range is how many uids are used in turn, so that the files of an ended
// terminal fall to another one as late as possible.
const Range = 1000

// An Account is what a PTY's processes run as.
type Account struct {
	UID, GID int // −1: the agent's own
	Home     string
	lock     *os.File // held while UID is in use; nil for the agent's own
}

// Credential returns nil for the agent's own account.
func (a Account) Credential() *syscall.Credential {
	if a.UID < 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
}

// Own gives the PTY's device to the account, so that its programs can open it
// by name and those of others can't.
func (a Account) Own(tty *os.File) error {
	if a.UID < 0 {
		return nil
	}
	return errors.Join(tty.Chown(a.UID, a.GID), tty.Chmod(0o600))
}

// A Pool hands out an account, with a home, for each PTY. It is safe for
// concurrent use.
type Pool struct {
	// Static after construction.
	Homes    string
	Own      bool // each PTY has a uid of its own
	FirstUID int
	GID      int
	Users    *passwd.File // nil: the users of PTYs have no names
	Shell    string
	Log      *slog.Logger

	mu   sync.Mutex
	next int // guarded by mu: where in the range the search begins
}

// Acquire returns an account for the PTY id. Its home is empty but for the
// shell's start files. Release it when none of its processes is left.
func (as *Pool) Acquire(id protocol.PTYID) (Account, error) {
	a := Account{UID: -1, GID: -1, Home: filepath.Join(as.Homes, string(id))}
	if as.Own {
		if err := as.reserve(&a); err != nil {
			return Account{}, err
		}
	}
	if err := makeHome(a); err != nil {
		return Account{}, errors.Join(err, as.Release(a))
	}
	as.named(a)
	return a, nil
}

// Release removes the home and frees the uid, which the next terminal may get.
func (as *Pool) Release(a Account) error {
	err := os.RemoveAll(a.Home)
	as.unnamed(a) // while nobody else can have the uid
	if a.lock != nil {
		err = errors.Join(err, a.lock.Close())
	}
	return err
}

// Reserve returns a uid that no PTY has, with its group, for a program that
// belongs to none. It is −1 where PTYs run as the agent's own user. release must
// be called when nothing runs under it any more. It fails with KindTooMany when
// none is free.
func (as *Pool) Reserve() (uid, gid int, release func(), err error) {
	a := Account{UID: -1, GID: -1}
	if !as.Own {
		return a.UID, a.GID, func() {}, nil
	}
	if err := as.reserve(&a); err != nil {
		return 0, 0, nil, err
	}
	return a.UID, a.GID, func() { a.lock.Close() }, nil
}

// reserve finds a uid that no other PTY has and under which nothing runs: an
// agent that was killed may have left processes behind.
func (as *Pool) reserve(a *Account) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	if err := os.MkdirAll(Locks, 0o700); err != nil {
		return fmt.Errorf("reserve a uid: %w", err)
	}
	busy := running()
	for range Range {
		uid := as.FirstUID + as.next
		as.next = (as.next + 1) % Range
		if busy[uid] {
			continue
		}
		lock, err := LockUID(uid)
		if err != nil {
			return fmt.Errorf("reserve uid %d: %w", uid, err)
		}
		if lock != nil {
			a.UID, a.GID, a.lock = uid, as.GID, lock
			return nil
		}
	}
	return protocol.Errorf(protocol.KindTooMany, "no uid is free for another terminal")
}

// running returns the uids under which something runs.
func running() map[int]bool {
	uids := make(map[int]bool)
	process.Each(func(s process.Stat) { uids[s.UID] = true })
	return uids
}

// LockUID returns nil when another agent, or this one, uses uid. The lock dies
// with the process.
func LockUID(uid int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(Locks, strconv.Itoa(uid)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, errors.Join(err, f.Close())
}

// makeHome makes a.Home anew. What a terminal of the same name left in an
// earlier life of the agent belongs to another uid and is removed.
func makeHome(a Account) error {
	if err := os.RemoveAll(a.Home); err != nil {
		return err
	}
	if err := os.Mkdir(a.Home, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(a.Home, Dir), 0o700); err != nil { // by which clearHome knows it, too
		return err
	}
	if err := chown(filepath.Join(a.Home, Dir), a); err != nil {
		return err
	}
	for name := range startFiles {
		path := filepath.Join(a.Home, name)
		if err := os.WriteFile(path, startFile(name), 0o644); err != nil {
			return err
		}
		if err := chown(path, a); err != nil {
			return err
		}
	}
	return chown(a.Home, a)
}

func chown(path string, a Account) error {
	if a.UID < 0 {
		return nil
	}
	return os.Lchown(path, a.UID, a.GID)
}
