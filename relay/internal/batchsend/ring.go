package batchsend

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface, include/uapi/linux/io_uring.h. A ring has two queues in
// memory that both sides see: of submissions, which we fill and the kernel empties,
// and of completions, the other way round.
const (
	opSend            = 26 // IORING_OP_SEND
	enterGetEvents    = 1  // IORING_ENTER_GETEVENTS
	featureSingleMmap = 1  // IORING_FEAT_SINGLE_MMAP

	// Where the kernel maps what, as offsets of mmap.
	queuesOffset  = 0
	entriesOffset = 0x10000000
)

// setupParams is struct io_uring_params: what a ring is like, and where the parts of
// its queues are.
type setupParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// A submission is struct io_uring_sqe.
type submission struct {
	opcode, flags uint8
	priority      uint16
	fd            int32
	offset        uint64
	address       uint64
	length        uint32
	messageFlags  uint32
	userData      uint64
	_             [3]uint64
}

// A completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	result   int32
	flags    uint32
}

// A ring is one io_uring. Nothing is under way in it between two calls of send.
type ring struct {
	// Static after newRing.
	fd                             int
	queues, entries                []byte // what is mapped
	submissions                    []submission
	completions                    []completion
	sqHead, sqTail, cqHead, cqTail *uint32

	// Owned by send.
	pieces    []Piece // being sent; they keep what the kernel reads in memory
	submitted int     // of them the kernel has taken so many
	ended     int     // and so many have ended
	calls     int     // that were made
}

// newRing makes a ring. It fails where the kernel has none, or forbids it.
func newRing() (*ring, error) {
	var p setupParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, Most, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &ring{fd: int(fd)}
	if err := r.mapQueues(&p); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// mapQueues makes the queues that p describes visible here.
func (r *ring) mapQueues(p *setupParams) (err error) {
	if p.features&featureSingleMmap == 0 {
		return errors.New("this kernel's io_uring is too old")
	}
	const access, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(completion{})))
	if r.queues, err = unix.Mmap(r.fd, queuesOffset, int(size), access, how); err != nil {
		return err
	}
	size = p.sqEntries * uint32(unsafe.Sizeof(submission{}))
	if r.entries, err = unix.Mmap(r.fd, entriesOffset, int(size), access, how); err != nil {
		return err
	}
	word := func(offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[offset])) }
	r.sqHead, r.sqTail, r.cqHead, r.cqTail = word(p.sq.head), word(p.sq.tail), word(p.cq.head), word(p.cq.tail)
	r.submissions = unsafe.Slice((*submission)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.completions = unsafe.Slice((*completion)(unsafe.Pointer(&r.queues[p.cq.cqes])), p.cqEntries)
	for i := range p.sqEntries {
		*word(p.sq.array + 4*i) = i // a place of the queue always has the entry of the same number
	}
	return nil
}

// close gives back what the kernel has of the ring.
func (r *ring) close() error {
	var errs []error
	for _, memory := range [][]byte{r.queues, r.entries} {
		if memory != nil {
			errs = append(errs, unix.Munmap(memory))
		}
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}

// send sends pieces, at most Most. It returns those that the kernel hasn't taken; then
// err says why, and the ring is of no more use.
func (r *ring) send(pieces []Piece) (left []Piece, err error) {
	r.pieces, r.submitted, r.ended, r.calls = pieces, 0, 0, 0
	r.fill()
	for r.ended < len(pieces) && err == nil {
		err = r.enter(len(pieces) - r.submitted)
	}
	if err != nil {
		r.finish()
	}
	r.pieces = nil
	runtime.KeepAlive(pieces)
	return pieces[r.submitted:], err
}

// fill queues a submission for each piece.
func (r *ring) fill() {
	tail, mask := *r.sqTail, uint32(len(r.submissions)-1) // they are a power of two
	for i := range r.pieces {
		p := &r.pieces[i]
		r.submissions[tail&mask] = submission{
			opcode: opSend, fd: int32(p.FD), userData: uint64(i),
			address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes)))), length: uint32(len(p.Bytes)),
			// With MSG_DONTWAIT each has ended when enter returns: nothing is left to
			// be done later.
			messageFlags: unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL,
		}
		tail++
	}
	atomic.StoreUint32(r.sqTail, tail)
}

// enter has the kernel take so many submissions, waits until all that it has taken
// have ended, and notes what came of them.
func (r *ring) enter(queued int) error {
	r.calls++
	await := queued + r.submitted - r.ended
	n, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(queued), uintptr(await), enterGetEvents, 0, 0)
	if errno == 0 {
		r.submitted += int(n)
	}
	r.reap()
	switch {
	case errno == unix.EINTR:
		return nil
	case errno != 0:
		return fmt.Errorf("io_uring_enter: %w", errno)
	case n == 0 && queued > 0:
		return errors.New("io_uring_enter: the kernel takes nothing")
	}
	return nil
}

// reap notes what has ended.
func (r *ring) reap() {
	head, tail, mask := *r.cqHead, atomic.LoadUint32(r.cqTail), uint32(len(r.completions)-1)
	for ; head != tail; head++ {
		c := &r.completions[head&mask]
		p := &r.pieces[c.userData]
		if c.result < 0 {
			p.settle(0, syscall.Errno(-c.result))
		} else {
			p.settle(int(c.result), nil)
		}
		r.ended++
	}
	atomic.StoreUint32(r.cqHead, head)
}

// finish takes back what the kernel hasn't taken, and waits for what it has: it may
// still read those bytes.
func (r *ring) finish() {
	atomic.StoreUint32(r.sqTail, atomic.LoadUint32(r.sqHead))
	for r.ended < r.submitted {
		if r.enter(0) != nil {
			runtime.Gosched()
		}
	}
}
