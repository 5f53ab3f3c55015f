package process

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// StartConfined starts cmd on a thread that [Confine] was called on. The thread
// then ends, so cmd must not use Pdeathsig, which would kill it.
func StartConfined(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() { // received below
		runtime.LockOSThread() // never unlocked: the thread's lost rights don't come back
		err := Confine()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}

// Confine prevents programs started from the calling thread from gaining rights
// by what they run: set-user-ID programs or file capabilities. It empties the
// bounding, inheritable and ambient sets as far as this process may, and sets
// no_new_privs. This program's own rights stay. The goroutine must have locked
// the thread and must never unlock it.
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

// maxCapabilities is the greatest number of capabilities of a kernel.
const maxCapabilities = 64

// dropBounding empties the bounding set. Without CAP_SETPCAP it can't, but then
// programs need no bound: they have no privileges and gain none.
func dropBounding() error {
	for c := uintptr(0); c < maxCapabilities; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 { // c and all above don't exist
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
