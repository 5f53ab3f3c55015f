//go:build hops

package hops

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noted is this program's file; nil where the environment names no directory.
var noted = open(os.Getenv(Variable))

// A ring is a file that is mapped into memory.
type ring struct {
	total *atomic.Uint64
	words []atomic.Uint64
}

// Pass notes that a key or an echo passes a place.
func Pass(p Place) {
	if noted == nil {
		return
	}
	word := uint64(p)<<timeBits | uint64(time.Now().UnixNano()/int64(unit))
	noted.words[(noted.total.Add(1)-1)%capacity].Store(word)
}

// open makes this program's file. Without one there is nothing to measure, so it
// says why on standard error and goes on.
func open(dir string) *ring {
	if dir == "" {
		return nil
	}
	r, err := mapped(filepath.Join(dir, nameOf(filepath.Base(os.Args[0]), os.Getpid())))
	if err != nil {
		fmt.Fprintln(os.Stderr, "hops:", err)
		return nil
	}
	return r
}

func mapped(name string) (*ring, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(fileBytes); err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(file.Fd()), 0, fileBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	words := unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&data[0])), 1+capacity) // a page is aligned; the machine is little-endian
	return &ring{&words[0], words[1:]}, nil
}
