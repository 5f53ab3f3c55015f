package account

import (
	"time"

	"golang.org/x/sys/unix"
)

// FileClock returns the time by the clock of file timestamps, which is slightly
// late, for comparison with that of [Account.ReadNote].
func FileClock() time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return time.Now()
	}
	return time.Unix(now.Unix())
}
