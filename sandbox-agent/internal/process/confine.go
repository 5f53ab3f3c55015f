package process

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// StartConfined starts cmd on a thread that [Confine] was called on. That thread
// ends at once: cmd must not be one that the kernel kills then (Pdeathsig).
func StartConfined(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() { // received below
		runtime.LockOSThread() // for ever: what was given up here doesn't come back
		err := Confine()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// Confine has what is started from the calling thread gain nothing by what it
// runs: no set-user-ID program, no capability of a file. The bounding set, what
// is inheritable and the ambient set are empty then, as far as this process may
// empty them, and no_new_privs is set. This program's own rights stay as they
// are, but the goroutine must have locked the thread and must never unlock it.
func Confine() error {
	if err := dropBounding(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := dropInheritable(); err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// maxCapabilities is how many capabilities a kernel could have.
const maxCapabilities = 64

// dropBounding empties the bounding set. Who lacks CAP_SETPCAP can't, and what
// it starts has no use for one: it has no privileges, and gains none.
func dropBounding() error {
	for c := uintptr(0); c < maxCapabilities; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 { // there is no such capability, nor any above
			return nil
		}
		if errors.Is(err, unix.EPERM) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropInheritable empties the inheritable set and with it the ambient one.
func dropInheritable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // of this thread
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	return unix.Capset(&header, &sets[0])
}
