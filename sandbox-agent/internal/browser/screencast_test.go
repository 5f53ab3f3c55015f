package browser

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestFrames: who watches sees the tab as it changes, whoever else does, and
// watching neither starts a Chromium nor keeps one.
func TestFrames(t *testing.T) {
	w := theWorld(t)
	if err := w.Stop(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	first, err := w.Frames(ctx, session, 0)
	if err != nil {
		t.Fatal(err)
	}
	if status := w.Status(t.Context(), session); status.State != stateStopped {
		t.Errorf("watching has started it: %+v", status)
	}
	w.visit(t, "/moving")
	frame := func(frames <-chan Frame) {
		t.Helper()
		select {
		case f := <-frames:
			if http.DetectContentType(f.JPEG) != "image/jpeg" {
				t.Errorf("%.20q", f.JPEG)
			}
		case <-time.After(patience):
			t.Fatalf("no frame in %s", patience)
		}
	}
	frame(first)
	frame(first)
	began := time.Now()
	for range 6 { // of which one may have waited here, and two may follow a stall
		frame(first)
	}
	if took := time.Since(began); took < 3*frameEvery {
		t.Errorf("6 frames in %v", took)
	}
	second, err := w.Frames(t.Context(), session, 0)
	if err != nil {
		t.Fatal(err)
	}
	frame(second)
	frame(first)
	leave()
	eventually(t, "closed", func() bool {
		select {
		case _, open := <-first:
			return !open
		default:
			return false
		}
	})
	frame(second)
	w.visit(t, "/form") // a page that stands still is shown to who comes late, too
	third, err := w.Frames(t.Context(), session, 0)
	if err != nil {
		t.Fatal(err)
	}
	frame(third)
}

// TestFramesOfNobody: at most so many watch, and nobody a session that is over.
func TestFramesOfNobody(t *testing.T) {
	b, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var last <-chan Frame
	for range maxViewers {
		if last, err = b.Frames(ctx, session, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Frames(ctx, session, 0); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("%v", err)
	}
	cancel()
	if _, open := <-last; open {
		t.Error("a frame of nothing")
	}
	eventually(t, "forgotten", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.seats) == 0
	})
	frames, err := b.Frames(t.Context(), session, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.End(session)
	if _, open := <-frames; open {
		t.Error("a frame of an ended session")
	}
	b.Close()
	if _, err := b.Frames(t.Context(), session, 0); protocol.KindOf(err) != protocol.KindEnded {
		t.Errorf("%v", err)
	}
}
