package terminal

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

// uidLocks is where agents of one machine agree who uses which uid.
const uidLocks = "/run/fairlead/uids"

// uidRange is how many uids are used in turn, so that the files of an ended
// terminal fall to another one as late as possible.
const uidRange = 1000

// An account is what a PTY's processes run as.
type account struct {
	uid, gid int // −1: the agent's own
	home     string
	lock     *os.File // held while uid is in use; nil for the agent's own
}

// credential returns nil for the agent's own account.
func (a account) credential() *syscall.Credential {
	if a.uid < 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// own gives the PTY's device to the account, so that its programs can open it
// by name and those of others can't.
func (a account) own(tty *os.File) error {
	if a.uid < 0 {
		return nil
	}
	return errors.Join(tty.Chown(a.uid, a.gid), tty.Chmod(0o600))
}

// accounts hands out an account, with a home, for each PTY.
type accounts struct {
	// Static after construction.
	homes    string
	own      bool // each PTY has a uid of its own
	firstUID int
	gid      int
	users    *passwd.File // nil: the users of PTYs have no names
	shell    string
	log      *slog.Logger

	mu   sync.Mutex
	next int // guarded by mu: where in the range the search begins
}

// acquire returns an account for the PTY id. Its home is empty but for the
// shell's start files. Release it when none of its processes is left.
func (as *accounts) acquire(id protocol.PTYID) (account, error) {
	a := account{uid: -1, gid: -1, home: filepath.Join(as.homes, string(id))}
	if as.own {
		if err := as.reserve(&a); err != nil {
			return account{}, err
		}
	}
	if err := makeHome(a); err != nil {
		return account{}, errors.Join(err, as.release(a))
	}
	as.named(a)
	return a, nil
}

// release removes the home and frees the uid, which the next terminal may get.
func (as *accounts) release(a account) error {
	err := os.RemoveAll(a.home)
	as.unnamed(a) // while nobody else can have the uid
	if a.lock != nil {
		err = errors.Join(err, a.lock.Close())
	}
	return err
}

// OwnsUID reports whether uid is one that terminals are given.
func (h *Host) OwnsUID(uid uint32) bool {
	return h.accounts.has(int(uid))
}

// reserve finds a uid that no other PTY has and under which nothing runs: an
// agent that was killed may have left processes behind.
func (as *accounts) reserve(a *account) error {
	as.mu.Lock()
	defer as.mu.Unlock()
	if err := os.MkdirAll(uidLocks, 0o700); err != nil {
		return fmt.Errorf("reserve a uid: %w", err)
	}
	busy := make(map[int]bool)
	process.Each(func(s process.Stat) { busy[s.UID] = true })
	for range uidRange {
		uid := as.firstUID + as.next
		as.next = (as.next + 1) % uidRange
		if busy[uid] {
			continue
		}
		lock, err := lockUID(uid)
		if err != nil {
			return fmt.Errorf("reserve uid %d: %w", uid, err)
		}
		if lock != nil {
			a.uid, a.gid, a.lock = uid, as.gid, lock
			return nil
		}
	}
	return protocol.Errorf(protocol.KindTooMany, "no uid is free for another terminal")
}

// lockUID returns nil when another agent, or this one, uses uid. The lock dies
// with the process.
func lockUID(uid int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(uidLocks, strconv.Itoa(uid)), os.O_RDWR|os.O_CREATE, 0o600)
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

// makeHome makes a.home anew. What a terminal of the same name left in an
// earlier life of the agent belongs to another uid and is removed.
func makeHome(a account) error {
	if err := os.RemoveAll(a.home); err != nil {
		return err
	}
	if err := os.Mkdir(a.home, 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(a.home, envDir), 0o700); err != nil { // by which clearHome knows it, too
		return err
	}
	if err := chown(filepath.Join(a.home, envDir), a); err != nil {
		return err
	}
	for name := range startFiles {
		path := filepath.Join(a.home, name)
		if err := os.WriteFile(path, startFile(name), 0o644); err != nil {
			return err
		}
		if err := chown(path, a); err != nil {
			return err
		}
	}
	return chown(a.home, a)
}

func chown(path string, a account) error {
	if a.uid < 0 {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}
