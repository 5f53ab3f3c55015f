package impair

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm wakes one waiter at a time. It is a timer of the kernel's that the
// runtime's poller watches, since the runtime's own timers are up to 1 ms late.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return alarm{}, fmt.Errorf("timer: %w", err)
	}
	return alarm{fd, os.NewFile(uintptr(fd), "timer")}, nil
}

// set has wait return after d.
func (a alarm) set(d time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	_ = unix.TimerfdSettime(a.fd, 0, &spec, nil) // fails for no value of spec
}

// wait returns when the time has come, or after close.
func (a alarm) wait() {
	var expirations [8]byte
	_, _ = a.file.Read(expirations[:])
}

func (a alarm) close() { a.file.Close() }
