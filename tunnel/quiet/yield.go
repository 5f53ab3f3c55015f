package quiet

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Yield lets other goroutines run, those that wait for a socket included.
//
// [runtime.Gosched] doesn't: with one processor the scheduler asks the kernel for
// sockets when nothing else can run, so never as long as whoever calls Gosched can,
// or every 10 ms, when the monitor does. Yield first waits for a descriptor of its own,
// of which the kernel tells together with all that is ready.
func Yield() {
	bell()()
	runtime.Gosched() // the scheduler begins with the last that it was told of
}

// A ringer is an eventfd: each write to it is an event, as it is watched by edges.
type ringer struct {
	mu   sync.Mutex // held while one waits
	file *os.File   // static; keeps the descriptor
	rung bool       // guarded by mu
}

// bell returns what waits until the kernel tells of what it was told here.
var bell = sync.OnceValue(func() (await func()) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return func() {}
	}
	r := &ringer{file: os.NewFile(uintptr(fd), "yield")}
	raw, err := r.file.SyscallConn()
	if err != nil {
		return func() {}
	}
	ring := r.ring // once: it is allocated
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.rung = false
		_ = raw.Read(ring) // can't fail: nobody closes it
	}
})

// ring writes at its first call, and is called again when that is told. The caller
// holds mu.
func (r *ringer) ring(fd uintptr) (over bool) {
	if r.rung {
		return true
	}
	r.rung = true
	_, err := Write(fd, one[:])
	return err != nil // without an event there is nothing to wait for
}

// one is what is added to the descriptor's number, which ends it after 2⁶⁴ calls.
var one = [8]byte{1}
