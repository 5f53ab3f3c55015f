package impair

import (
	"net/netip"
	"syscall"
	"time"
)

var noAddr netip.AddrPort

// cpu returns how long this process has run on all cores.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
