package browser

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jarfile"
)

// Keep has Chromiums given what k has. It is called before anything runs.
func (b *Browser) Keep(k KeptCookies) { b.opts.kept = k }

// SetCookies writes cookies into the session's Chromium, or, if it doesn't run, into
// its profile. What can't stand there is set at the next start: [KeptCookies] has it by
// then, and pending says that it is newer than what the profile has. refused says of
// some cookies, by their index, why they aren't there. err says that none may be.
//
// A push isn't a use: otherwise one a minute would keep a Chromium running.
func (b *Browser) SetCookies(ctx context.Context, session protocol.SessionID, cookies []seal.Cookie) (refused map[int]string, err error) {
	change := jarfile.Change{Set: cookies}
	refused = change.Foreseen()
	err = b.change(ctx, session, change, func(c *chromium) (err error) {
		refused, err = jar.Set(ctx, c, cookies)
		return err
	})
	return refused, err
}

// RemoveCookies takes cookies out of the session's Chromium. One that doesn't run
// loses them from its profile, or at its next start.
func (b *Browser) RemoveCookies(ctx context.Context, session protocol.SessionID, ids []seal.CookieID) error {
	return b.change(ctx, session, jarfile.Change{Remove: ids}, func(c *chromium) error { return jar.Remove(ctx, c, ids) })
}

// change makes a change: by live if a Chromium runs, else in the profile.
func (b *Browser) change(ctx context.Context, session protocol.SessionID, change jarfile.Change, live func(*chromium) error) error {
	for {
		c, resting, err := b.awake(ctx, session, change)
		if resting != nil {
			b.write(ctx, resting, change)
		}
		if c == nil || err != nil {
			return err
		}
		if err := live(c); err == nil || !c.dead() {
			return err
		}
	}
}

// awake returns the session's Chromium, nil if none runs. It waits for one that starts
// or ends. Where none runs it notes the change as pending. If there is a profile to
// write, it returns the seat, which stays busy until that was done.
func (b *Browser) awake(ctx context.Context, session protocol.SessionID, change jarfile.Change) (c *chromium, resting *seat, err error) {
	for {
		b.mu.Lock()
		s := b.seats[session]
		if b.closed || s != nil && s.ended {
			b.mu.Unlock()
			return nil, nil, errClosed
		}
		if s == nil || s.busy == nil && s.running == nil {
			if b.postpone(s, change) {
				resting = s
			}
			b.mu.Unlock()
			return nil, resting, nil
		}
		c, wait := s.running, s.busy
		b.mu.Unlock()
		if wait == nil && !c.dead() {
			return c, nil, nil
		}
		if wait == nil { // its processes may use the profile for a moment yet
			b.end(s, func() bool { return s.running == c })
			continue
		}
		select {
		case <-wait.done:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// postpone notes what the seat's next Chromium has to be given, whatever its profile
// has. It reports whether that is to be written, and keeps a Chromium from starting
// until then. A session without a profile is given everything. The caller holds mu.
func (b *Browser) postpone(s *seat, change jarfile.Change) (write bool) {
	if s == nil || s.account == nil {
		return false
	}
	b.pending[s.session] = b.pending[s.session].And(change.IDs())
	if b.opts.Files.Command == nil {
		return false
	}
	s.busy = &attempt{done: make(chan struct{})}
	return true
}

// write writes a seat's profile, as far as that can be, and frees the seat. All of it
// stays pending: the next start compares it with what Chromium has made of it.
func (b *Browser) write(ctx context.Context, s *seat, change jarfile.Change) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	b.mu.Lock()
	user := s.account.credential()
	b.mu.Unlock()
	written, err := b.opts.Files.Write(ctx, b.profile(s.session), user, change)
	if err != nil {
		b.opts.Log.Info("cookies wait for a browser's next start", "session", s.session, "why", err)
	} else {
		b.opts.Log.Debug("cookies written into a browser's profile", "session", s.session, "written", written, "waiting", len(change.Set)-written)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(s.busy.done)
	s.busy = nil
}
