// Package account gives each terminal an account to run as: a uid of its own if
// the agent is root, a home with the shell's start files, and an entry in the
// list of users. It also removes what a killed agent has left.
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

// Locks is where the agents of one machine lock the uids that they use.
const Locks = "/run/fairlead/uids"

// Range is how many uids are used in rotation, so that a uid, and the files of
// its ended terminal, are reused as late as possible.
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
	Own      bool // each PTY has its own uid
	FirstUID int
	GID      int
	Users    *passwd.File // nil: the users of PTYs get no names
	Shell    string
	Log      *slog.Logger

	mu   sync.Mutex
	next int // guarded by mu: where in the range the search begins
}

// Acquire returns an account for the PTY id, with a home that holds only the
// shell's start files. Release it when none of its processes is left.
func (as *Pool) Acquire(id protocol.PTYID) (Account, error) {
	a := Account{UID: -1, GID: -1, Home: filepath.Join(as.Homes, string(id))}
	if as.Own {
		if err := as.reserve(&a, -1); err != nil {
			return Account{}, err
		}
	}
	if err := makeHome(a); err != nil {
		return Account{}, errors.Join(err, as.Release(a))
	}
	as.named(a)
	return a, nil
}

// Release removes the home and frees the uid for another terminal.
func (as *Pool) Release(a Account) error {
	err := os.RemoveAll(a.Home)
	as.unnamed(a) // while nobody else can have the uid
	if a.lock != nil {
		err = errors.Join(err, a.lock.Close())
	}
	return err
}

// Reserve returns a uid that no PTY has, with its group, for a program outside
// of terminals. It is −1 if PTYs run as the agent's own user. The caller must
// call release when nothing runs under it any more. It fails with KindTooMany
// if none is free.
func (as *Pool) Reserve() (uid, gid int, release func(), err error) {
	a := Account{UID: -1, GID: -1}
	if !as.Own {
		return a.UID, a.GID, func() {}, nil
	}
	if err := as.reserve(&a, -1); err != nil {
		return 0, 0, nil, err
	}
	return a.UID, a.GID, func() { a.lock.Close() }, nil
}

// reserve finds a uid that no other PTY has and no process uses, which a killed
// agent may have left: the uid first, if it is one of the range and free.
func (as *Pool) reserve(a *Account, first int) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	if err := os.MkdirAll(Locks, 0o700); err != nil {
		return fmt.Errorf("reserve a uid: %w", err)
	}
	busy := running()
	for i := range Range + 1 {
		uid := first
		if i > 0 {
			uid = as.FirstUID + as.next
			as.next = (as.next + 1) % Range
		}
		if !as.Has(uid) || busy[uid] {
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

// Has reports whether uid is in the range for terminals.
func (as *Pool) Has(uid int) bool {
	return as.Own && uid >= as.FirstUID && uid < as.FirstUID+Range
}

// running returns the uids of all running processes.
func running() map[int]bool {
	uids := make(map[int]bool)
	process.Each(func(s process.Stat) { uids[s.UID] = true })
	return uids
}

// LockUID locks uid, or returns nil if an agent already uses it. The lock ends
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

// makeHome makes a.Home anew. It removes what a terminal of the same name left
// before the agent restarted, which belongs to another uid.
func makeHome(a Account) error {
	if err := os.RemoveAll(a.Home); err != nil {
		return err
	}
	if err := os.Mkdir(a.Home, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(a.Home, Dir), 0o700); err != nil { // clearHome also recognises homes by it
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
