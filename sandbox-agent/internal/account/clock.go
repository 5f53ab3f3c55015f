package account

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FileClock returns the time by the clock of file timestamps, which is slightly
// late, for comparison with that of [Account.ReadNote].
//
// It is asked for with each key. Go's scheduler isn't told of the call, which never
// blocks: it would wake its monitor, a thread that then naps 20 µs at a time beside
// the program that is to echo the key.
func FileClock() time.Time {
	var now unix.Timespec
	if _, _, err := syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_REALTIME_COARSE, uintptr(unsafe.Pointer(&now)), 0); err != 0 {
		return time.Now()
	}
	return time.Unix(now.Unix())
}
