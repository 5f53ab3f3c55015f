// Package process stops, pauses and ends programs together with all they
// started, and knows how common coding agents are started.
package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// kernel reports whether s seems to be a thread of the kernel, which has no
// environment.
func (s Stat) kernel() bool { return s.PID == kernelThreads || s.Parent == kernelThreads }

// stopped reports whether s doesn't run until it is continued.
func (s Stat) stopped() bool { return s.state == 'T' || s.state == 't' || s.stopPending }

// Read reads /proc/<pid>. It returns false if there is no such process.
func Read(pid int) (Stat, bool) {
	var r reader
	return r.read(pid)
}

// A reader reads one process after another. The zero value is ready.
type reader struct{ stat, status []byte } // reused

func (r *reader) read(pid int) (s Stat, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	var err, err2 error
	r.stat, err = slurp(dir+"/stat", r.stat)
	if err == nil {
		r.status, err2 = slurp(dir+"/status", r.status)
	}
	if err != nil || err2 != nil {
		return Stat{}, false
	}
	return parse(pid, r.stat, r.status)
}

// firstRead is what almost all files of /proc are shorter than.
const firstRead = 2 << 10

// slurp reads a file of /proc into buf, which it may move. A walk reads hundreds:
// [os.ReadFile] takes twice as long, half of that for asking whether it may wait.
func slurp(file string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return buf, err
	}
	defer unix.Close(fd)
	buf = buf[:0]
	for {
		buf = slices.Grow(buf, max(firstRead, len(buf))-len(buf)+1)
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return buf, err
		case n == 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
}

// lookAgain is the time between two looks at what may change in a moment.
const lookAgain = time.Millisecond

// kernelThreads is the PID of the parent of the kernel's threads, outside of
// containers.
const kernelThreads = 2

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
	_, rest, _ := bytes.Cut(status, []byte(label))
	rest, _, _ = bytes.Cut(rest, []byte("\n"))
	first, _, _ := bytes.Cut(rest, []byte("\t"))
	return string(first)
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
