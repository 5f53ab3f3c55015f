package browser

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxViewers bounds the viewers of one session's browser.
	maxViewers = 64
	// frameEvery is the least time between two frames.
	frameEvery = time.Second / 15
	// frameQuality is the JPEG quality.
	frameQuality = 60
	// maxFrame bounds a frame, in bytes; larger ones are not shown.
	maxFrame = 2 << 20
)

// A Frame is a picture of a tab.
type Frame struct {
	JPEG []byte
}

// A viewer watches a session's browser.
type viewer struct {
	tab    int        // 0: the active one
	frames chan Frame // one element: the newest
	leave  func()     // ends the watching
}

// show replaces an untaken frame by f. The caller holds the Browser's mu.
func (v *viewer) show(f Frame) {
	select {
	case <-v.frames:
	default:
	}
	v.frames <- f // there is room: nobody else sends
}

// of returns the tab that is watched.
func (v *viewer) of(active int) int { return cmp.Or(v.tab, active) }

// Frames returns pictures of a tab of the session as it changes, whenever there is
// one in a Chromium; tab 0 is the active one, whichever that is. Untaken older pictures are dropped. It starts no Chromium, and
// doesn't count as use. The channel is closed when ctx or the session ends.
func (b *Browser) Frames(ctx context.Context, session protocol.SessionID, tab int) (<-chan Frame, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.seat(session)
	if b.closed || s.ended {
		return nil, errClosed
	}
	if len(s.viewers) >= maxViewers {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d people watch already", maxViewers)
	}
	ctx, cancel := context.WithCancel(ctx)
	v := &viewer{tab: tab, frames: make(chan Frame, 1), leave: cancel}
	s.viewers[v] = struct{}{}
	_, active := s.tabs.live()
	if last := s.last[v.of(active)]; len(last.JPEG) > 0 {
		v.show(last)
	}
	b.cast(s)
	b.wait.Go(func() {
		<-ctx.Done()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.viewers, v)
		close(v.frames)
		b.cast(s)
		b.tidy(s)
	})
	return v.frames, nil
}

// cast runs the screencasts of the tabs that somebody watches. The caller holds
// mu.
func (b *Browser) cast(s *seat) {
	pages, active := s.tabs.live()
	watched := make(map[int]bool, len(s.viewers))
	for v := range s.viewers {
		watched[v.of(active)] = s.running != nil
	}
	for tab := range s.last {
		if !watched[tab] {
			delete(s.last, tab) // it would be outdated
		}
	}
	for _, p := range pages {
		if !watched[p.id] {
			p.cast(nil)
			continue
		}
		p.cast(func(jpeg []byte) { b.picture(s, p, jpeg) })
	}
}

// picture shows a picture of a page to those who watch its tab.
func (b *Browser) picture(s *seat, of *page, jpeg []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.running != of.c {
		return
	}
	_, active := s.tabs.live()
	for v := range s.viewers {
		if v.of(active) == of.id {
			s.last[of.id] = Frame{JPEG: jpeg}
			v.show(s.last[of.id])
		}
	}
}

// A screencast is the state of showing a page.
type screencast struct {
	mu   sync.Mutex
	show func(jpeg []byte) // guarded by mu; nil: nobody watches
	next time.Time         // guarded by mu: when the next frame may be asked for

	switching sync.Mutex // held while switching Chromium's screencast
	on        bool       // guarded by switching
}

// cast passes pictures of the page to show from now on; nil: stop. It doesn't
// block.
func (p *page) cast(show func([]byte)) {
	p.screen.mu.Lock()
	p.screen.show = show
	p.screen.mu.Unlock()
	p.later(func(ctx context.Context) {
		p.screen.switching.Lock()
		defer p.screen.switching.Unlock()
		p.screen.mu.Lock()
		on := p.screen.show != nil
		p.screen.mu.Unlock()
		if on == p.screen.on {
			return
		}
		p.screen.on = on
		if !on {
			_, _ = cdp.Call(ctx, p.target, cdppage.StopScreencast, cdp.Empty{}) // or the tab is gone
			return
		}
		quality, newest := int64(frameQuality), true
		_, _ = cdp.Call(ctx, p.target, cdppage.StartScreencast, cdppage.StartScreencastParams{
			Format: cdppage.StartScreencastFormatJpeg, Quality: &quality, MaxWidth: viewWidth, MaxHeight: viewHeight,
			EveryNthFrame: 1, MaxFramesInFlight: 1, SendLastFrame: &newest,
		})
	})
}

// showFrame passes a frame on, and requests the next one in due time.
func (p *page) showFrame(e *cdppage.EventScreencastFrame) {
	p.screen.mu.Lock()
	show := p.screen.show
	now := time.Now()
	pause := max(0, p.screen.next.Sub(now))
	p.screen.next = now.Add(pause + frameEvery)
	p.screen.mu.Unlock()
	time.AfterFunc(pause, func() {
		p.later(func(ctx context.Context) {
			_, _ = cdp.Call(ctx, p.target, cdppage.ScreencastFrameAck, cdppage.ScreencastFrameAckParams{SessionID: e.SessionID})
		})
	})
	if show != nil && len(e.Data) > 0 && len(e.Data) <= maxFrame {
		show(e.Data)
	}
}
