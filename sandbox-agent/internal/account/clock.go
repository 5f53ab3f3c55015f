package account

import (
	"time"

	"golang.org/x/sys/unix"
)

// FileClock returns the time as files are given it, which is a little late. It
// can be compared with that of [Account.ReadNote].
func FileClock() time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return time.Now()
	}
	return time.Unix(now.Unix())
}
