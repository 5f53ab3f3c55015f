// Package process stops, pauses and ends programs together with all they
// started, and knows how common coding agents are started.
package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A Stat is what Linux reports of one process.
type Stat struct {
	PID, Parent, Group, Session int
	UID                         int    // the real one
	started                     uint64 // distinguishes it from a later process with its PID
	state                       byte
	stopPending                 bool // it stops before it runs another instruction
}

func (s Stat) zombie() bool { return s.state == 'Z' || s.state == 'X' }

// stopped reports whether s doesn't run until it is continued.
func (s Stat) stopped() bool { return s.state == 'T' || s.state == 't' || s.stopPending }

// Read reads /proc/<pid>. It returns false if there is no such process.
func Read(pid int) (Stat, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Stat{}, false
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Stat{}, false
	}
	return parse(pid, stat, status)
}

// Positions in stat behind the command.
const (
	fieldState   = 0
	fieldParent  = 1
	fieldGroup   = 2
	fieldSession = 3
	fieldStarted = 19
	fieldsNeeded = 20
)

// parse reads stat, and the uid and the pending signals of status. stat's
// second field is the command in parentheses, which may hold any character.
func parse(pid int, stat, status []byte) (Stat, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < fieldsNeeded {
		return Stat{}, false
	}
	var errs [7]error
	number := func(i, field int) (n int) {
		n, errs[i] = strconv.Atoi(string(fields[field]))
		return n
	}
	s := Stat{
		PID: pid, state: fields[fieldState][0],
		Parent: number(0, fieldParent), Group: number(1, fieldGroup), Session: number(2, fieldSession),
	}
	s.started, errs[3] = strconv.ParseUint(string(fields[fieldStarted]), 10, 64)
	s.UID, errs[4] = strconv.Atoi(line(status, "\nUid:\t"))
	const stop = 1 << (syscall.SIGSTOP - 1)
	var own, shared uint64
	own, errs[5] = strconv.ParseUint(line(status, "\nSigPnd:\t"), 16, 64)
	shared, errs[6] = strconv.ParseUint(line(status, "\nShdPnd:\t"), 16, 64)
	s.stopPending = (own|shared)&stop != 0
	return s, errors.Join(errs[:]...) == nil
}

// line returns the first value behind label in status.
func line(status []byte, label string) string {
	_, rest, _ := strings.Cut(string(status), label)
	rest, _, _ = strings.Cut(rest, "\n")
	first, _, _ := strings.Cut(rest, "\t")
	return first
}

// Each calls fn for every process that is not a zombie.
func Each(fn func(Stat)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return // no /proc: nothing can be found
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, ok := Read(pid); ok && !s.zombie() {
			fn(s)
		}
	}
}

// Signal sends sig to every process that match accepts and returns their
// number. It never signals this process or process 1.
func Signal(sig syscall.Signal, match func(Stat) bool) int {
	n := 0
	Each(func(s Stat) {
		if match(s) && send(sig, s, match) {
			n++
		}
	})
	return n
}

// send sends sig to s. It checks s again through a handle, which never comes to
// mean another process.
func send(sig syscall.Signal, s Stat, match func(Stat) bool) bool {
	if s.PID == 1 || s.PID == os.Getpid() {
		return false
	}
	p, err := os.FindProcess(s.PID)
	if err != nil {
		return false
	}
	again, ok := Read(s.PID)
	sent := ok && !again.zombie() && match(again) && p.Signal(sig) == nil
	return p.Release() == nil && sent
}
