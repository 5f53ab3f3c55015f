package mux

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A trip is a path's.
type trip time.Duration

func (t trip) Trip() time.Duration { return time.Duration(t) }

// TestWindowGrows: a window becomes as large as what is read in two round trips,
// within its bounds, and stays as it is where a larger one would fill a queue only.
func TestWindowGrows(t *testing.T) {
	for _, c := range []struct {
		name string
		trip time.Duration
		rate int // bytes a second
		want int
	}{
		{"near and slow", time.Millisecond, 1 << 20, firstWindow},
		{"far and slow", 50 * time.Millisecond, 1 << 20, firstWindow},
		{"far and fast", 100 * time.Millisecond, 20 << 20, 4 << 20},
		{"near and fast", time.Millisecond, 100 << 20, 2 << 20},
		{"farther and faster", time.Second, 1 << 30, MaxWindow},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFlows(clientParity)
			f.first, f.growth = firstWindow, growth{most: MaxWindow, path: trip(c.trip)}
			f.in(frame{flags: flagSYN, stream: 1})
			one := f.take(1, nil)
			const piece = 16 << 10
			for range 4096 {
				if _, bad := f.in(frame{data: true, stream: 1, length: piece}); bad != nil {
					t.Fatal(bad)
				}
				time.Sleep(time.Duration(piece) * time.Second / time.Duration(c.rate))
				f.read(one, piece)
				if w := one.window; w.credit+one.unread > w.size || w.credit < w.size-w.size/reportPart-piece {
					t.Fatalf("%s: %d may come, %d are unread, of %d", c.name, w.credit, one.unread, w.size)
				}
			}
			if one.window.size != c.want {
				t.Errorf("%s: %d bytes, want %d", c.name, one.window.size, c.want)
			}
			f.in(frame{flags: flagRST, stream: 1})
			if f.growth.sum != 0 {
				t.Errorf("%s: %d bytes are taken for grown", c.name, f.growth.sum)
			}
		})
	}
}

// TestGrownWindowsAreBounded: all together they grow only so far.
func TestGrownWindowsAreBounded(t *testing.T) {
	f := newFlows(clientParity)
	f.first, f.growth = firstWindow, growth{most: MaxWindow, path: trip(time.Hour)}
	sum := 0
	for id := uint32(1); id < 200; id += 2 {
		f.in(frame{flags: flagSYN, stream: id})
		one := f.take(id, nil)
		for range 1000 {
			f.in(frame{data: true, stream: id, length: 64 << 10})
			f.read(one, 64<<10)
		}
		sum += one.window.size - firstWindow
	}
	if sum > maxGrown || sum < maxGrown/2 {
		t.Errorf("they have grown by %d bytes", sum)
	}
}

// TestGrowingSession: both ends of a session whose windows grow carry what they
// should, at once.
func TestGrowingSession(t *testing.T) {
	client, server, _ := pair(t)
	client.Grow(trip(time.Second))
	server.Grow(trip(time.Second))
	a, b := streams(t, client, server)
	const size = 64 << 20
	for _, s := range []*Stream{a, b} {
		s.SetBulk()
		go func() { // ends with the session
			s.Write(make([]byte, size))
			s.CloseWrite()
		}()
	}
	back := make(chan int64)
	go func() { // received below
		n, _ := io.Copy(io.Discard, b)
		back <- n
	}()
	n, err := io.Copy(io.Discard, a)
	if m := <-back; n != size || m != size || err != nil {
		t.Errorf("%d and %d bytes, %v", n, m, err)
	}
}

// TestPeerBeyondItsWindow: yamux takes more than we let come, so the guard looks.
func TestPeerBeyondItsWindow(t *testing.T) {
	f := newFlows(clientParity)
	f.in(frame{flags: flagSYN, stream: 1})
	_, bad := f.in(frame{data: true, stream: 1, length: Window})
	if bad != nil {
		t.Errorf("a full window: %v", bad)
	}
	if _, bad = f.in(frame{data: true, stream: 1, length: 1}); bad == nil || bad.Reason != ReasonWindow {
		t.Errorf("beyond it: %v", bad)
	}
}
