package process

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// markName is the variable whose value distinguishes programs' processes.
	markName = "FAIRLEAD_AGENT"
	// maxEnviron bounds how much of an environment is read, in bytes. A mark after
	// that is not found.
	maxEnviron = 256 << 10
	// markPrefix begins the names of all variables that mark.
	markPrefix = "FAIRLEAD_"
	// maxMark and maxMarks bound what is kept of an environment: a mark's bytes, and
	// how many. A longer or later one is not found.
	maxMark, maxMarks = 256, 64
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
// "FAIRLEAD_…=value", in their environment, as the user uid and the group gid; −1:
// this process's own.
func MarkOf(entry string, uid, gid int) Mark {
	if uid < 0 {
		uid, gid = os.Getuid(), os.Getgid()
	}
	return Mark{entry: entry, UID: uid, GID: gid}
}

// Environ returns a copy of env with the mark in front.
func (m Mark) Environ(env []string) []string {
	if m.entry == "" {
		return env
	}
	return append([]string{m.entry}, env...)
}

// A user is whose processes are read as whom.
type user struct{ uid, gid int }

// readMarks returns which of a user's processes bear what. A process that can't be
// read bears nothing.
func readMarks(who user, among []Stat) map[string][]Stat {
	found := make(map[string][]Stat)
	denied := addMarks(found, among)
	if len(denied) > 0 && os.Geteuid() == 0 {
		// Without CAP_SYS_PTRACE, as in most containers, even root can only read
		// processes of its own user.
		asUser(who.uid, who.gid, func() {
			if denied = addMarks(found, denied); len(denied) > 0 { // also while it is in exec
				time.Sleep(lookAgain)
				addMarks(found, denied)
			}
		})
	}
	return found
}

// addMarks adds to found what processes bear, and returns those that may not be
// read. A process that seems to have no environment may be in exec, and is read
// once more.
func addMarks(found map[string][]Stat, among []Stat) (denied []Stat) {
	var blank []Stat
	read := func(s Stat) {
		env, err := environ(s.PID)
		switch {
		case errors.Is(err, os.ErrPermission):
			denied = append(denied, s)
		case err == nil && len(env) == 0 && !s.kernel():
			blank = append(blank, s)
		}
		for _, entry := range marks(env) {
			found[entry] = append(found[entry], s)
		}
	}
	for _, s := range among {
		read(s)
	}
	if again := blank; len(again) > 0 {
		time.Sleep(lookAgain)
		for _, s := range again {
			read(s)
		}
	}
	return denied
}

// marks returns the entries of env, as Linux shows it, that may be marks.
func marks(env []byte) (found []string) {
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		may := bytes.HasPrefix(entry, []byte(markPrefix)) && len(entry) <= maxMark
		if may && len(found) < maxMarks && !slices.Contains(found, string(entry)) {
			found = append(found, string(entry))
		}
	}
	return found
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
