package pty

import (
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A play is a launcher whose program is started when the test says so.
type play struct {
	begun, open chan struct{}
	fail        error
	device

	mu      sync.Mutex
	plan    Launch
	starts  int
	signals []syscall.Signal
}

func newPlay() *play {
	return &play{begun: make(chan struct{}, 1), open: make(chan struct{})}
}

func (p *play) Launch(l Launch) (Device, Child, error) {
	p.mu.Lock()
	p.plan = l
	p.starts++
	p.mu.Unlock()
	p.begun <- struct{}{}
	<-p.open
	if p.fail != nil {
		return nil, nil, p.fail
	}
	return &p.device, child{p}, nil
}

// A device takes 2 bytes at a time.
type device struct {
	mu     sync.Mutex
	got    []byte
	sizes  [][2]int
	closed bool
}

func (d *device) Read([]byte) (int, error) { return 0, io.EOF }

func (d *device) Offer(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(p), 2)
	d.got = append(d.got, p[:n]...)
	return n, nil
}

func (d *device) WhenWritable(fn func() bool) error {
	for !fn() {
	}
	return nil
}

func (d *device) Resize(cols, rows int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sizes = append(d.sizes, [2]int{cols, rows})
	return nil
}

func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

func (d *device) Editing() (int, bool) { return 5, true }

type child struct{ *play }

func (c child) Wait() Exit                    { return Exit{Code: 9} }
func (c child) Signal(sig syscall.Signal) int { return c.SignalAll(sig) }
func (c child) Freeze(bool) error             { return errors.New("frozen") }
func (c child) PID() int                      { return 77 }
func (c child) Dir() string                   { return "/w" }

func (c child) SignalAll(sig syscall.Signal) int {
	c.play.mu.Lock()
	defer c.play.mu.Unlock()
	c.signals = append(c.signals, sig)
	return 3
}

// TestPendingStarts: what is offered starts the program once, and reaches it; what
// came while it started reaches it too.
func TestPendingStarts(t *testing.T) {
	play := newPlay()
	p := NewPending(Launch{Cols: 80, Rows: 24, Dir: "/d"}, play)
	if _, byKey := p.Editing(); byKey || !p.Waits() || p.PID() != 0 || p.Dir() != "" || p.Signal(syscall.SIGINT) != 0 || p.SignalAll(0) != 0 ||
		p.SignalAll(syscall.SIGCONT) != 0 || p.Freeze(true) != nil || p.Resize(100, 30) != nil {
		t.Error("it isn't quiet while it waits")
	}
	if n, err := p.Offer(nil); n != 0 || err != nil || !p.Waits() {
		t.Errorf("nothing was offered: %d, %v", n, err)
	}
	written := make(chan error, 1)
	text := []byte("hello")
	write := func() bool {
		n, err := p.Offer(text)
		text = text[n:]
		return len(text) == 0 || err != nil
	}
	if write() {
		t.Error("written before there is a program")
	}
	go func() { written <- p.WhenWritable(write) }() // received below
	<-play.begun
	if p.Waits() || p.Resize(120, 40) != nil || p.SignalAll(syscall.SIGINT) != 0 || p.SignalAll(syscall.SIGINT) != 0 || p.SignalAll(syscall.SIGKILL) != 0 {
		t.Error("it isn't quiet while it starts")
	}
	close(play.open)
	if err := <-written; err != nil || string(play.got) != "hello" || play.starts != 1 {
		t.Errorf("%v: it got %q, started %d times", err, play.got, play.starts)
	}
	if e := p.Wait(); e.Code != 9 {
		t.Errorf("%+v", e)
	}
	if l := play.plan; l.Cols != 100 || l.Rows != 30 || l.Dir != "/d" || !slices.Equal(play.sizes, [][2]int{{120, 40}}) {
		t.Errorf("started as %+v, then %v", l, play.sizes)
	}
	if group, _ := p.Editing(); group != 5 || p.PID() != 77 || p.Dir() != "/w" || p.Signal(syscall.SIGUSR1) != 3 || p.Freeze(true) == nil {
		t.Error("it isn't the program")
	}
	if p.Close() != nil || !play.closed {
		t.Error("the device is open")
	}
}

// TestPendingMissesNothing: signals that came while the program started reach it,
// each once and in their order.
func TestPendingMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		play := newPlay()
		p := NewPending(Launch{}, play)
		p.Offer([]byte("x"))
		<-play.begun
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT, syscall.SIGHUP, syscall.SIGKILL, 0} {
			p.SignalAll(sig)
		}
		close(play.open)
		synctest.Wait()
		if want := []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT, syscall.SIGKILL}; !slices.Equal(play.signals, want) {
			t.Errorf("it got %v, want %v", play.signals, want)
		}
	})
}

// TestPendingNeverStarts: what ends it first ends it for good.
func TestPendingNeverStarts(t *testing.T) {
	for name, tt := range map[string]struct {
		end func(p *Pending)
		how string
	}{
		"hung up":     {func(p *Pending) { p.SignalAll(syscall.SIGHUP) }, "SIGHUP"},
		"interrupted": {func(p *Pending) { p.SignalAll(syscall.SIGINT); p.SignalAll(syscall.SIGKILL) }, "SIGINT"},
		"killed":      {func(p *Pending) { p.SignalAll(syscall.SIGKILL) }, "SIGKILL"},
		"closed":      {func(p *Pending) { p.Close() }, "SIGHUP"},
	} {
		synctest.Test(t, func(t *testing.T) {
			play := newPlay()
			p := NewPending(Launch{}, play)
			read, writable, exit := make(chan error, 1), make(chan error, 1), make(chan Exit, 1)
			go func() { _, err := p.Read(make([]byte, 1)); read <- err }() // all received below
			go func() { writable <- p.WhenWritable(func() bool { return false }) }()
			go func() { exit <- p.Wait() }()
			synctest.Wait()
			tt.end(p)
			if e := <-exit; e.Signal != tt.how || e.Code != -1 {
				t.Errorf("%s: %+v", name, e)
			}
			if err := <-read; err != io.EOF {
				t.Errorf("%s: Read: %v", name, err)
			}
			if err := <-writable; !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: WhenWritable: %v", name, err)
			}
			if _, err := p.Offer([]byte("x")); !errors.Is(err, os.ErrClosed) || p.Waits() {
				t.Errorf("%s: Offer: %v", name, err)
			}
			if p.Resize(1, 1) != nil || p.Close() != nil || p.SignalAll(syscall.SIGKILL) != 0 || play.starts != 0 {
				t.Errorf("%s: %d were started", name, play.starts)
			}
		})
	}
}

// TestPendingFails: a program that can't be started says why, and ends.
func TestPendingFails(t *testing.T) {
	play := newPlay()
	play.fail = errors.New("no room")
	close(play.open)
	p := NewPending(Launch{}, play)
	if n, err := p.Offer([]byte("x")); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	said, err := io.ReadAll(readerOf{p})
	if err != nil || string(said) != "fairlead: the program can't be started: no room\r\n" {
		t.Errorf("%q, %v", said, err)
	}
	if e := p.Wait(); e != (Exit{Code: 126}) {
		t.Errorf("%+v", e)
	}
}

type readerOf struct{ Device }

// TestPendingRaces ends it at the moment at which it starts: either it never
// started, or what started got the signal.
func TestPendingRaces(t *testing.T) {
	for range 200 {
		play := newPlay()
		close(play.open)
		p := NewPending(Launch{}, play)
		var both sync.WaitGroup
		both.Go(func() { p.Offer([]byte("x")) })
		both.Go(func() { p.SignalAll(syscall.SIGKILL) })
		both.Go(func() { p.Resize(3, 4) })
		both.Wait()
		e := p.Wait()
		p.SignalAll(0) // after those it missed
		play.mu.Lock()
		if never := e.Signal == "SIGKILL"; never != (play.starts == 0) {
			t.Fatalf("%+v after %d starts", e, play.starts)
		}
		play.mu.Unlock()
	}
}
