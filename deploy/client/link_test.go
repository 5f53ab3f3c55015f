package client

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// ends is a Receiver that remembers.
type ends struct {
	got   []byte
	swept int
	why   error
}

func (e *ends) Received(p []byte, _ time.Time) error {
	e.got = append(e.got, p...)
	return nil
}
func (e *ends) Swept(time.Time) { e.swept++ }
func (e *ends) Ended(why error) { e.why = why }

func TestPumpedLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		var to ends
		var link Link = &pumped{conn: near, to: &to}
		must(t, link.Begin([]byte("early ")))
		_, err := far.Write([]byte("late"))
		must(t, err)
		time.Sleep(10*SweepEvery + SweepEvery/2)
		synctest.Wait()
		if string(to.got) != "early late" || to.swept != 10 {
			t.Errorf("got %q, swept %d times", to.got, to.swept)
		}
		// A peer that takes nothing holds nobody up, but not without a bound.
		piece := bytes.Repeat([]byte("x"), 1<<10)
		sent := 0
		for err = error(nil); err == nil; sent += len(piece) {
			err = link.Write(piece)
			synctest.Wait()
		}
		if sent -= len(piece); !errors.Is(err, ErrDeaf) || sent < MaxKept || sent > MaxKept+len(piece) {
			t.Errorf("%d bytes were kept, then %v", sent, err)
		}
		got := make([]byte, sent)
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, bytes.Repeat(piece, sent/len(piece))) {
			t.Errorf("other bytes came, %v", err)
		}
		link.Close()
		synctest.Wait()
		if !errors.Is(to.why, net.ErrClosed) || !errors.Is(link.Write(piece), net.ErrClosed) {
			t.Errorf("ended with %v", to.why)
		}
	})
}

// What waits when the peer has ended is written still, if it takes it.
func TestPumpedLinkLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		to := &ends{}
		link := &pumped{conn: near, to: to}
		must(t, link.Begin(nil))
		must(t, link.Write([]byte("last")))
		link.end(io.EOF)
		synctest.Wait()
		if to.why != io.EOF {
			t.Errorf("ended with %v", to.why)
		}
		got, err := io.ReadAll(far)
		if string(got) != "last" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		near, _ := net.Pipe() // nobody reads the other end
		link := &pumped{conn: near, to: &ends{}}
		must(t, link.Begin(nil))
		must(t, link.Write([]byte("last")))
		began := time.Now()
		link.end(io.EOF)
		// The bubble ends when nothing of the link runs any more.
		time.Sleep(linger)
		synctest.Wait()
		if _, err := near.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("open %v after its end: %v", time.Since(began), err)
		}
	})
}
