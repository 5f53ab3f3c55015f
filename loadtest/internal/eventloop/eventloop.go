// Package eventloop reads the sockets of many viewers on one goroutine.
package eventloop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/client"
)

const (
	// readBytes is what one read takes at most; the buffer is the loop's, not
	// the socket's.
	readBytes = 64 << 10
	// batch is how many sockets are looked at between two looks at the clock.
	batch      = 256
	sweepEvery = client.SweepEvery
)

// A Loop is a [client.Transport]. With a goroutine for each socket half of a
// generator's time goes to waking them and to a second read that finds nothing.
type Loop struct {
	// Static after construction.
	poll, wake, timer int       // descriptors
	began             time.Time // when the timer was set
	done              chan struct{}
	lag               func(due, at time.Time)
	every             time.Duration // between two looks at sockets; 0: at once

	looked time.Time // owned by run: when it last waited for sockets

	mu      sync.Mutex
	sockets map[int32]*polled // guarded by mu
	closed  bool              // guarded by mu
}

// New starts a loop; Close ends it. lag, if not nil, is called every 50 ms
// with the time at which the loop should have got to a timer that stands in line
// with the sockets, and the time at which it did.
func New(lag func(due, at time.Time)) (*Loop, error) { return NewGathering(lag, 0) }

// NewGathering is New for a loop that lets arrivals gather: it looks at its sockets
// no more often than every so long. Then one read takes what several writes sent,
// and those who write wake nobody. What comes is noted up to that much too late,
// never too early.
func NewGathering(lag func(due, at time.Time), every time.Duration) (*Loop, error) {
	l := &Loop{done: make(chan struct{}), lag: lag, every: every, sockets: make(map[int32]*polled), poll: -1, wake: -1, timer: -1}
	if err := l.open(); err != nil {
		l.closeDescriptors()
		return nil, fmt.Errorf("event loop: %w", err)
	}
	go l.run() // Close waits for it
	return l, nil
}

func (l *Loop) open() (err error) {
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return err
	}
	every := unix.NsecToTimespec(int64(sweepEvery))
	l.began = time.Now()
	if err = unix.TimerfdSettime(l.timer, 0, &unix.ItimerSpec{Interval: every, Value: every}, nil); err != nil {
		return err
	}
	for _, fd := range []int{l.wake, l.timer} {
		if err = unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the loop and its sockets.
func (l *Loop) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // has room
	<-l.done
}

func (l *Loop) closeDescriptors() {
	for _, fd := range []int{l.poll, l.wake, l.timer} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// run serves the sockets until the loop is closed.
func (l *Loop) run() {
	defer close(l.done)
	defer l.closeDescriptors()
	events := make([]unix.EpollEvent, batch)
	ready := make([]*polled, 0, batch)
	buf := make([]byte, readBytes)
	due := l.began.Add(sweepEvery)
	found := 0
	for {
		l.gather(found)
		n, err := unix.EpollWait(l.poll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic("eventloop: epoll_wait: " + err.Error()) // only a bug makes it fail
		}
		found = max(n, 0)
		timer := false
		ready = ready[:0]
		l.mu.Lock()
		closed := l.closed
		for _, e := range events[:found] {
			if s := l.sockets[e.Fd]; s != nil {
				s.events = e.Events
				ready = append(ready, s)
			} else if int(e.Fd) == l.timer {
				timer = true
			}
		}
		l.mu.Unlock()
		if closed {
			l.endAll()
			return
		}
		for _, s := range ready {
			s.serve(buf)
		}
		if timer {
			due = l.tick(due)
		}
	}
}

// gather waits until it is time for the next look at the sockets. When the last
// one found as many as it could there are more, and they are behind.
func (l *Loop) gather(found int) {
	if l.every == 0 || found == batch {
		return
	}
	if wait := l.every - time.Since(l.looked); wait > 0 {
		rest := unix.NsecToTimespec(wait.Nanoseconds())
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &rest, nil) // a signal ends it early
	}
	l.looked = time.Now()
}

// tick handles the timer, which was due at due, and returns when it is due next.
func (l *Loop) tick(due time.Time) time.Time {
	var expirations [8]byte
	if _, err := unix.Read(l.timer, expirations[:]); err != nil {
		return due
	}
	now := time.Now()
	for ; !due.After(now); due = due.Add(sweepEvery) {
		if l.lag != nil {
			l.lag(due, now)
		}
	}
	l.mu.Lock()
	all := make([]*polled, 0, len(l.sockets))
	for _, s := range l.sockets {
		all = append(all, s)
	}
	l.mu.Unlock()
	for _, s := range all {
		s.sweep(now)
	}
	return due
}

func (l *Loop) endAll() {
	l.mu.Lock()
	all := l.sockets
	l.sockets = nil
	l.mu.Unlock()
	for _, s := range all {
		s.end(errLoopClosed)
	}
}

var errLoopClosed = errors.New("the event loop was closed")

// Adopt implements [client.Transport].
func (l *Loop) Adopt(conn *net.TCPConn, to client.Receiver) (client.Link, error) {
	return l.adopt(conn, to, 0)
}

// Limited is the loop for sockets of which so many bytes are read per second.
func (l *Loop) Limited(rate int) client.Transport { return limited{l, rate} }

type limited struct {
	loop *Loop
	rate int
}

// Adopt implements [client.Transport].
func (l limited) Adopt(conn *net.TCPConn, to client.Receiver) (client.Link, error) {
	return l.loop.adopt(conn, to, l.rate)
}

// adopt takes the descriptor out of the hands of Go's runtime, which would wake
// for each arrival otherwise.
func (l *Loop) adopt(conn *net.TCPConn, to client.Receiver, rate int) (client.Link, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, failed := -1, error(nil)
	err = raw.Control(func(old uintptr) {
		fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("event loop: %w", err)
	}
	conn.Close() // the other descriptor keeps the connection
	return &polled{loop: l, to: to, rate: rate, fd: fd, room: rate / int(time.Second/sweepEvery)}, nil
}

// Dialer returns what dials with a receive buffer of so many bytes in the
// kernel.
func Dialer(receive int) client.DialFunc {
	dialer := net.Dialer{KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receive)
		})
		return errors.Join(err, failed)
	}}
	return dialer.DialContext
}

// A polled socket is served by a loop.
type polled struct {
	// Static after construction.
	loop *Loop
	to   client.Receiver
	rate int // bytes per second that are read; 0: no limit

	// Owned by the loop.
	events uint32
	room   int  // bytes that may be read before the next sweep
	paused bool // not read until then

	reading sync.Mutex // held while to is called
	over    bool       // guarded by reading

	mu     sync.Mutex
	fd     int    // guarded by mu; −1 when it is closed
	kept   []byte // guarded by mu: what the kernel didn't take
	wanted uint32 // guarded by mu: events that are waited for
}

// Begin implements [client.Link].
func (s *polled) Begin(early []byte) error {
	err := s.first(early)
	if err == nil {
		err = s.enter()
	}
	if err != nil {
		s.end(err)
	}
	return err
}

// first gives what was read already.
func (s *polled) first(early []byte) error {
	if len(early) == 0 {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.to.Received(early, time.Now())
}

// enter gives the socket to the loop.
func (s *polled) enter() error {
	l := s.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.closed {
		return errLoopClosed
	}
	if s.fd < 0 {
		return net.ErrClosed
	}
	s.wanted |= unix.EPOLLIN
	if err := unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: s.wanted, Fd: int32(s.fd)}); err != nil {
		return fmt.Errorf("event loop: %w", err)
	}
	l.sockets[int32(s.fd)] = s
	return nil
}

// serve reads what there is, and writes what is kept.
func (s *polled) serve(buf []byte) {
	if s.events&unix.EPOLLOUT != 0 {
		s.flush()
	}
	if s.events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) == 0 {
		return
	}
	if s.rate > 0 {
		buf = buf[:min(len(buf), max(s.room, 1))]
	}
	s.mu.Lock()
	fd := s.fd
	if fd < 0 {
		s.mu.Unlock()
		return
	}
	n, err := unix.Read(fd, buf)
	s.mu.Unlock()
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil:
		s.end(err)
		return
	case n == 0:
		s.end(io.EOF)
		return
	}
	s.reading.Lock()
	err = s.to.Received(buf[:n], time.Now())
	s.reading.Unlock()
	if err != nil {
		s.end(err)
		return
	}
	if s.rate > 0 {
		if s.room -= n; s.room <= 0 {
			s.paused = true
			s.want(unix.EPOLLIN, false)
		}
	}
}

// sweep does what is overdue.
func (s *polled) sweep(now time.Time) {
	if s.rate > 0 {
		s.room = min(s.room+s.rate/int(time.Second/sweepEvery), max(s.rate, 1))
		if s.paused && s.room > 0 {
			s.paused = false
			s.want(unix.EPOLLIN, true)
		}
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if !s.over {
		s.to.Swept(now)
	}
}

// want adds or removes an event that is waited for.
func (s *polled) want(event uint32, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wantLocked(event, on)
}

// wantLocked does what want does. The caller holds mu.
func (s *polled) wantLocked(event uint32, on bool) {
	wanted := s.wanted &^ event
	if on {
		wanted |= event
	}
	if s.fd >= 0 && wanted != s.wanted {
		s.wanted = wanted
		// It fails for a descriptor that is closed alone, which fd is not.
		_ = unix.EpollCtl(s.loop.poll, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: wanted, Fd: int32(s.fd)})
	}
}

// Write implements [client.Link]. It keeps what the kernel doesn't take.
func (s *polled) Write(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return net.ErrClosed
	}
	if len(s.kept) == 0 {
		n, err := unix.Write(s.fd, p)
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return err // the reading side hears of it
		}
		p = p[max(n, 0):]
	}
	if len(p) == 0 {
		return nil
	}
	if len(s.kept)+len(p) > client.MaxKept {
		return client.ErrDeaf
	}
	s.kept = append(s.kept, p...)
	s.wantLocked(unix.EPOLLOUT, true)
	return nil
}

// flush writes what is kept.
func (s *polled) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return
	}
	n, err := unix.Write(s.fd, s.kept)
	if err != nil {
		return // EAGAIN, or the reading side hears of it
	}
	if s.kept = s.kept[n:]; len(s.kept) == 0 {
		s.kept = nil
		s.wantLocked(unix.EPOLLOUT, false)
	}
}

// end closes the socket and tells the receiver, once. It must not be called by
// the receiver's own methods.
func (s *polled) end(why error) {
	s.shut()
	s.reading.Lock()
	defer s.reading.Unlock()
	if !s.over {
		s.over = true
		s.to.Ended(why)
	}
}

// shut closes the descriptor.
func (s *polled) shut() {
	s.mu.Lock()
	fd := s.fd
	s.fd = -1
	s.kept = nil
	s.mu.Unlock()
	if fd < 0 {
		return
	}
	s.loop.mu.Lock()
	delete(s.loop.sockets, int32(fd))
	s.loop.mu.Unlock()
	unix.Close(fd) // which takes it out of the poll as well: nobody else has it
}

// Close implements [client.Link].
func (s *polled) Close() { s.end(net.ErrClosed) }
