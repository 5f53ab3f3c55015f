package spill

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/protocol"
)

// salted is stream for one epoch, so that no log has the bytes of another.
func salted(e protocol.Epoch, from, to uint64) []byte {
	p := stream(from, to)
	for i := range p {
		p[i] ^= byte(e)
	}
	return p
}

// TestConcurrentUse has terminals come, write more than the limits and go,
// under few names, while others read them and close some early.
func TestConcurrentUse(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := open(t, Options{PerTerminal: 1 << 10, Total: 3 << 10}) // segments of 128
	const names, lives, bytesEach = 4, 12, 12 << 10
	var writers, readers sync.WaitGroup
	var read, gone atomic.Int64
	var epochs atomic.Uint64
	for i := range names {
		writers.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range lives {
				e := protocol.Epoch(epochs.Add(1))
				f := s.Create(fmt.Sprint(i), e)
				done := make(chan struct{})
				for range 2 {
					readers.Go(func() { follow(t, f, done, &read, &gone) })
				}
				early := rng.IntN(3) == 0
				for offset := uint64(0); offset < bytesEach; {
					end := offset + uint64(rng.IntN(200))
					f.Append(offset, salted(e, offset, end))
					f.Resize(end, 1+rng.IntN(100), 1)
					offset = end
					if early && offset > bytesEach/2 {
						early = false
						readers.Go(func() { f.Close() })
					}
				}
				close(done)
				if rng.IntN(2) == 0 { // else the next of its name does it
					f.Close()
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
	if read.Load() == 0 || gone.Load() == 0 {
		t.Errorf("%d bytes read, %d times too late", read.Load(), gone.Load())
	}
	t.Logf("%d bytes read, %d times too late", read.Load(), gone.Load())
}

// follow reads f until done, and then all that is left.
func follow(t *testing.T, f *File, done <-chan struct{}, read, gone *atomic.Int64) {
	buf := make([]byte, 100)
	for offset, last := uint64(0), false; ; {
		n, _, err := f.Read(offset, buf)
		lost, isGone := errors.AsType[ErrGone](err)
		switch {
		case isGone:
			if lost.Oldest <= offset {
				t.Errorf("Read(%d): %v", offset, err)
				return
			}
			gone.Add(1)
			offset = lost.Oldest
		case err == io.EOF:
			if last {
				return
			}
			select {
			case <-done:
				last = true
			default:
			}
			f.Oldest()
			f.SizeAt(offset)
		case err != nil:
			t.Errorf("Read(%d): %v", offset, err)
			return
		default:
			if want := salted(f.Epoch(), offset, offset+uint64(n)); !bytes.Equal(buf[:n], want) {
				t.Errorf("Read(%d) = %x, want %x", offset, buf[:n], want)
				return
			}
			offset += uint64(n)
			read.Add(int64(n))
		}
	}
}

// TestReadWhileItIsDropped drops a segment between the time it is found and
// the time it is read, and after.
func TestReadWhileItIsDropped(t *testing.T) {
	s := open(t, Options{})
	f := s.Create(pty, epoch)
	f.Append(0, stream(0, 40))
	s.mu.Lock()
	g, _, _, err := f.locate(0, 10)
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.root.Open(g.path())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	f.Append(40, stream(40, 200))
	buf := make([]byte, 10)
	if _, err := in.ReadAt(buf, 0); err != nil || !bytes.Equal(buf, stream(0, 10)) {
		t.Errorf("a segment that is open: %x, %v", buf, err)
	}
	if err := s.readSegment(g, buf, 0); !unreadable(err) {
		t.Errorf("a segment that is gone: %v", err)
	}
	oldest, _ := f.Oldest()
	// Its name may be another's by now, so that reading it may succeed.
	if err := f.confirm(g, nil); err != (ErrGone{oldest}) {
		t.Errorf("a segment that was dropped meanwhile: %v", err)
	}
	wantGone(t, f, 0, oldest)
}

// TestCloseWaitsForRemovals: a later File of the name could else lose a
// segment to a removal that was meant for this one's.
func TestCloseWaitsForRemovals(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: dir})
		f := s.Create(pty, epoch)
		f.Append(0, stream(0, 40))
		s.mu.Lock()
		dropped := f.dropAll() // by another terminal, say
		s.mu.Unlock()
		closed := false
		go func() {
			f.Close()
			closed = true
		}()
		synctest.Wait()
		if closed {
			t.Error("closed before its segments are removed")
		}
		s.removeOrLog(dropped)
		synctest.Wait()
		if !closed {
			t.Error("not closed after its segments were removed")
		}
	})
}

// TestCloseDuringAWrite leaves nothing of a segment that is being begun, or
// written on.
func TestCloseDuringAWrite(t *testing.T) {
	for _, before := range []int{0, 5} {
		dir := t.TempDir()
		var log journal
		s := open(t, Options{Dir: dir, Logger: log.logger()})
		f := s.Create(pty, epoch)
		f.Append(0, stream(0, uint64(before)))
		closed := make(chan error)
		s.o.write = func(w io.Writer, p []byte) (int, error) {
			go func() { closed <- f.Close() }()
			for isOpen := true; isOpen; {
				s.mu.Lock()
				isOpen = !f.closed
				s.mu.Unlock()
			}
			return w.Write(p)
		}
		f.Append(uint64(before), stream(uint64(before), 30))
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := onDisk(t, dir); len(got) > 0 || s.Bytes() != 0 {
			t.Errorf("%d bytes; on disk: %v", s.Bytes(), got)
		}
		if log.buf.Len() > 0 {
			t.Errorf("logged:\n%s", log.buf.String())
		}
	}
}

// TestDroppedDuringAWrite: what was being written to a segment that another
// terminal took is written again.
func TestDroppedDuringAWrite(t *testing.T) {
	s := open(t, Options{PerTerminal: 64, Total: 64}) // segments of 8
	f, other := s.Create(pty, epoch), s.Create("other", epoch)
	f.Append(0, stream(0, 5))
	s.o.write = func(w io.Writer, p []byte) (int, error) {
		s.o.write = io.Writer.Write
		other.Append(0, stream(0, 4))
		s.mu.Lock()
		dropped := f.dropAll() // as if other had needed it
		s.mu.Unlock()
		s.removeOrLog(dropped)
		return w.Write(p)
	}
	f.Append(5, stream(5, 7))
	wantHeld(t, f, 5, 7)
	wantHeld(t, other, 0, 4)
	if n := s.Bytes(); n != 6 {
		t.Errorf("%d bytes", n)
	}
}
