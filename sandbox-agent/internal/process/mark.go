package process

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// markName is the variable whose value distinguishes programs' processes.
	markName = "FAIRLEAD_AGENT"
	// maxEnviron bounds how much of an environment is read, in bytes. A mark after
	// that is not found.
	maxEnviron = 256 << 10
)

// A Mark is an entry of a program's environment. All that the program starts
// inherits it, so even a daemon that has left its session and parent is
// recognized by it. The zero Mark marks nothing.
type Mark struct {
	entry    string // "NAME=value"; empty: none
	UID, GID int    // of processes that may bear it
}

// NewMark returns a new mark for a program of the user uid and the group gid;
// −1: this process's own.
func NewMark(uid, gid int) Mark {
	if uid < 0 {
		uid, gid = os.Getuid(), os.Getgid()
	}
	return Mark{entry: markName + "=" + rand.Text(), UID: uid, GID: gid}
}

// MarkOf returns the mark that programs bear which were started with entry,
// "NAME=value", in their environment, as the user uid and the group gid; −1: this
// process's own.
func MarkOf(entry string, uid, gid int) Mark {
	if uid < 0 {
		uid, gid = os.Getuid(), os.Getgid()
	}
	return Mark{entry: entry, UID: uid, GID: gid}
}

// Signal sends sig to all that bears m, and returns the number of processes.
func (m Mark) Signal(sig syscall.Signal) int {
	var all []Stat
	Each(func(s Stat) {
		if s.UID == m.UID {
			all = append(all, s)
		}
	})
	n := 0
	m.find(all, func(s Stat) {
		if send(sig, s, func(again Stat) bool { return again.started == s.started }) {
			n++
		}
	})
	return n
}

// Environ returns a copy of env with the mark in front.
func (m Mark) Environ(env []string) []string {
	if m.entry == "" {
		return env
	}
	return append([]string{m.entry}, env...)
}

// find calls found for each of among that bears m. A process that can't be read
// doesn't.
func (m Mark) find(among []Stat, found func(Stat)) {
	if m.entry == "" || len(among) == 0 {
		return
	}
	var denied []Stat
	look := func(s Stat) error {
		env, err := environ(s.PID)
		if err == nil && m.in(env) {
			found(s)
		}
		return err
	}
	for _, s := range among {
		if errors.Is(look(s), os.ErrPermission) {
			denied = append(denied, s)
		}
	}
	if len(denied) == 0 || os.Geteuid() != 0 {
		return
	}
	// Without CAP_SYS_PTRACE, as in most containers, even root can only read
	// processes of its own user.
	asUser(m.UID, m.GID, func() {
		for _, s := range denied {
			_ = look(s) // there is no other way
		}
	})
}

// in reports whether env, as Linux shows it, has the mark.
func (m Mark) in(env []byte) bool {
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if string(entry) == m.entry {
			return true
		}
	}
	return false
}

// environ returns the environment that pid's program was started with, at most
// maxEnviron bytes.
func environ(pid int) ([]byte, error) {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxEnviron))
}

// asUser calls fn on a thread that reads files as user uid and group gid, or
// doesn't call it if that is impossible.
func asUser(uid, gid int, fn func()) {
	done := make(chan struct{})
	go func() { // received below
		defer close(done)
		// A thread that can't be reset stays locked and ends with this goroutine.
		runtime.LockOSThread()
		wasGID, err := unix.SetfsgidRetGid(gid)
		if err != nil {
			return
		}
		wasUID, err := unix.SetfsuidRetUid(uid)
		if err != nil {
			return
		}
		if isUser(uid, gid) {
			fn()
		}
		_, errUID := unix.SetfsuidRetUid(wasUID)
		_, errGID := unix.SetfsgidRetGid(wasGID)
		if errUID == nil && errGID == nil && isUser(wasUID, wasGID) {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}

// isUser reports whether this thread reads files as user uid and group gid. The
// kernel reports no failure to set them.
func isUser(uid, gid int) bool {
	const ask = -1 // sets nothing
	hasUID, errUID := unix.SetfsuidRetUid(ask)
	hasGID, errGID := unix.SetfsgidRetGid(ask)
	return errUID == nil && errGID == nil && hasUID == uid && hasGID == gid
}
