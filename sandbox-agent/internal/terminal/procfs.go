package terminal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// procStat is what Linux tells of one process.
type procStat struct {
	pid, group, session int
	uid                 int // the real one
	zombie              bool
}

// readProc reads /proc/<pid>; false when there is no such process.
func readProc(pid int) (procStat, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return procStat{}, false
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return procStat{}, false
	}
	return parseProc(pid, stat, status)
}

// parseProc takes the state, group and session from stat, whose second field is
// the command in parentheses and may itself hold any character, and the uid
// from status.
func parseProc(pid int, stat, status []byte) (procStat, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 4 {
		return procStat{}, false
	}
	s := procStat{pid: pid, zombie: fields[0][0] == 'Z' || fields[0][0] == 'X'}
	var errs [3]error
	s.group, errs[0] = strconv.Atoi(string(fields[2]))
	s.session, errs[1] = strconv.Atoi(string(fields[3]))
	_, uids, _ := strings.Cut(string(status), "\nUid:\t")
	uid, _, _ := strings.Cut(uids, "\t")
	s.uid, errs[2] = strconv.Atoi(uid)
	return s, errors.Join(errs[:]...) == nil
}

// eachProcess calls fn for every process that is not a zombie.
func eachProcess(fn func(procStat)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return // no /proc: nothing can be found
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, ok := readProc(pid); ok && !s.zombie {
			fn(s)
		}
	}
}

// signalProcesses sends sig to every process that match accepts and returns to
// how many. Each is looked at again through a handle that can't come to mean
// another process.
func signalProcesses(sig syscall.Signal, match func(procStat) bool) int {
	n := 0
	eachProcess(func(s procStat) {
		if s.pid == 1 || s.pid == os.Getpid() || !match(s) {
			return
		}
		p, err := os.FindProcess(s.pid)
		if err != nil {
			return
		}
		again, ok := readProc(s.pid)
		sent := ok && !again.zombie && match(again) && p.Signal(sig) == nil
		if err := p.Release(); err == nil && sent {
			n++
		}
	})
	return n
}

// keepDescriptors has every descriptor of this process closed in the programs
// it starts. Go sees to that for those it opens, not for what the agent itself
// inherited, say from a supervisor.
func keepDescriptors() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // no /proc: they can't be found
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
