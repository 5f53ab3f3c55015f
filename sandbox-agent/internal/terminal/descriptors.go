package terminal

import (
	"os"
	"strconv"
	"syscall"
)

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
