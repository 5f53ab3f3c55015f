// Package quiet reads and writes non-blocking sockets without telling Go's
// scheduler.
//
// The scheduler expects of each system call that it may block, and has a thread of
// its own, the monitor, look after that. In a process that sleeps between two small
// messages the monitor sleeps as well, and the first system call wakes it: a futex,
// a change of threads and some rounds of 20 µs, a third of what a relay does for a
// keystroke. A call on a non-blocking socket never blocks, so it needs none of that.
//
// The monitor also preempts goroutines that compute for long, therefore it mustn't
// sleep for good: one call in [ordinary], and each that copies much, is made in the
// ordinary way.
package quiet

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// ordinary is how many calls there are to one that the scheduler is told of.
	ordinary = 64
	// longWrite is more than what is written without telling it, in bytes.
	longWrite = 16 << 10
)

// calls counts the calls of all sockets.
var calls atomic.Uint32

// told reports whether the scheduler is to be told of this call.
func told() bool { return calls.Add(1)%ordinary == 0 }

// Read reads what a non-blocking socket has. The error is a syscall.Errno, such as
// EAGAIN.
func Read(fd uintptr, p []byte) (int, error) {
	if raced || len(p) == 0 || told() {
		return again(func() (int, error) { return syscall.Read(int(fd), p) })
	}
	for {
		n, _, err := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if err == 0 {
			return int(n), nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Peek fails with EAGAIN while a non-blocking socket has nothing to read, and there
// may still come something.
func Peek(fd uintptr) error {
	var first [1]byte
	for {
		// Its time is nothing to a message's: it isn't one of those that are told.
		_, _, err := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&first)), 1, unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
		if err == 0 {
			return nil
		}
		if err != unix.EINTR {
			return err
		}
	}
}

// Write writes as much as a non-blocking socket takes.
func Write(fd uintptr, p []byte) (int, error) {
	if raced || len(p) == 0 || len(p) > longWrite || told() {
		return again(func() (int, error) { return syscall.Write(int(fd), p) })
	}
	for {
		n, _, err := syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if err == 0 {
			return int(n), nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// again repeats a call that a signal has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err == nil {
			return n, nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}

// Receive is recvmsg on a non-blocking socket. What h points to must be memory of Go.
func Receive(fd uintptr, h *unix.Msghdr) (int, error) {
	return message(unix.SYS_RECVMSG, fd, h, told())
}

// Send is sendmsg on a non-blocking socket.
func Send(fd uintptr, h *unix.Msghdr) (int, error) {
	return message(unix.SYS_SENDMSG, fd, h, told() || h.Iov != nil && h.Iov.Len > longWrite)
}

func message(call, fd uintptr, h *unix.Msghdr, told bool) (int, error) {
	for {
		var n uintptr
		var err syscall.Errno
		if told {
			n, _, err = syscall.Syscall(call, fd, uintptr(unsafe.Pointer(h)), 0)
		} else {
			n, _, err = syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(h)), 0)
		}
		if err == 0 {
			return int(n), nil
		}
		if err != unix.EINTR {
			return 0, err
		}
	}
}
