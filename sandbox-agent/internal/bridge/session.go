package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// A session is one at the server. The zero session stands for none, in which a
// session begins.
type session struct {
	// Static after construction.
	id       string   // as the server calls it; "" where it has no sessions
	version  string   // of the protocol, as the server has chosen
	lists    []string // of whose changes the server tells
	replaces bool     // the program doesn't know that it is another one

	lost      latch // the server doesn't know it any more, or another has taken its place
	listening latch // the server's stream is open, or there is none
}

func (s *session) isLost() bool {
	select {
	case <-s.lost.c:
		return true
	default:
		return false
	}
}

// initialize opens a session as the program asks, and answers it. It waits for
// an agent that isn't there.
func (b *bridge) initialize(ctx context.Context, m *message) {
	wait, cancel := context.WithTimeoutCause(ctx, b.limits.away, errAway)
	defer cancel()
	pause := b.newPause()
	for {
		s, answer, err := b.open(ctx, m)
		if err == nil {
			b.mu.Lock()
			b.hello, b.initialized = m, false
			b.mu.Unlock()
			b.adopt(s)
			b.write(answer.raw)
			return
		}
		if !errors.Is(err, errAway) || !pause.wait(wait) {
			b.write(fault(m.rawID, err))
			return
		}
	}
}

// open makes a session with the initialize m. What comes before the answer is
// passed on.
func (b *bridge) open(ctx context.Context, m *message) (*session, *message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limits.away, errSilent)
	defer cancel()
	r, err := b.try(ctx, http.MethodPost, &session{}, m, "")
	if err != nil {
		return nil, nil, err
	}
	if r.StatusCode != http.StatusOK {
		return nil, nil, refusal(r)
	}
	var answer *message
	err = b.messages(r, &cursor{}, func() {}, func(said *message) bool {
		if said.method != "" {
			b.write(said.raw)
			return false
		}
		answer = said
		return true
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, errBroken
	}
	s, err := newSession(r.Header.Get("Mcp-Session-Id"), answer)
	return s, answer, err
}

func newSession(id string, answer *message) (*session, error) {
	var body struct {
		Error  json.RawMessage `json:"error"`
		Result *struct {
			Version      string                     `json:"protocolVersion"`
			Capabilities map[string]json.RawMessage `json:"capabilities"`
		} `json:"result"`
	}
	if json.Unmarshal(answer.raw, &body) != nil || body.Result == nil {
		return nil, &refused{status: http.StatusOK, fault: body.Error, text: "it opens no session"}
	}
	s := &session{id: id, version: body.Result.Version, lost: newLatch(), listening: newLatch()}
	for _, kind := range []string{"tools", "prompts", "resources"} {
		var capability struct {
			ListChanged bool `json:"listChanged"`
		}
		if json.Unmarshal(body.Result.Capabilities[kind], &capability) == nil && capability.ListChanged {
			s.lists = append(s.lists, kind)
		}
	}
	return s, nil
}

// adopt makes s the session. Requests of the server that the program hasn't
// answered in the one before are void.
func (b *bridge) adopt(s *session) {
	b.mu.Lock()
	old := b.session
	b.session, b.trouble = s, nil
	void := b.void(old)
	b.bump()
	b.mu.Unlock()
	if old != nil {
		old.lost.happen()
	}
	for _, id := range void {
		b.write(notification("notifications/cancelled", map[string]any{
			"requestId": id, "reason": "the agent was restarted",
		}))
	}
}

// bump wakes who waits for a change. b.mu is held.
func (b *bridge) bump() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// lose notes that the server doesn't know s.
func (b *bridge) lose(s *session) {
	s.lost.happen()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bump()
}

// usable returns the session, and waits for the next one while it is lost, which
// it tells first. Before the first it is one that stands for none.
func (b *bridge) usable(ctx context.Context, waits func()) (*session, error) {
	for {
		b.mu.Lock()
		s, changed, trouble := b.session, b.changed, b.trouble
		b.mu.Unlock()
		switch {
		case s == nil:
			return &session{}, nil
		case !s.isLost():
			return s, nil
		case trouble != nil:
			return nil, trouble
		}
		waits()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// ready passes on that the program is initialized. What it sends next waits
// until the server's stream is open: a change behind it can't go unseen.
func (b *bridge) ready(ctx context.Context, m *message) {
	b.mu.Lock()
	b.initialized = true
	b.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, b.limits.note)
	defer cancel()
	s, err := b.usable(wait, func() {})
	if err != nil || s.id == "" && s.version == "" {
		return // the next session begins with it
	}
	if b.post(ctx, s, m) != nil {
		b.lose(s)
		return
	}
	b.mu.Lock()
	b.bump()
	b.mu.Unlock()
	select {
	case <-s.listening.c:
	case <-s.lost.c:
	case <-time.After(b.limits.stream):
	case <-ctx.Done():
	}
}

// keep listens to the server in each session, and opens another one when that is
// lost.
func (b *bridge) keep(ctx context.Context) {
	for ctx.Err() == nil {
		b.mu.Lock()
		s, initialized, changed := b.session, b.initialized, b.changed
		b.mu.Unlock()
		switch {
		case s != nil && s.isLost():
			b.replace(ctx, s)
		case s != nil && initialized:
			b.listen(ctx, s)
		default:
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// replace opens a session in the place of old, as often as it takes.
func (b *bridge) replace(ctx context.Context, old *session) {
	b.log.Info("the session has ended, opening another one")
	pause := b.newPause()
	for {
		b.mu.Lock()
		hello, initialized, current := b.hello, b.initialized, b.session
		b.mu.Unlock()
		if current != old {
			return // the program has begun anew itself
		}
		s, _, err := b.open(ctx, hello)
		if err == nil && initialized {
			s.replaces = true
			err = b.post(ctx, s, &message{raw: notification("notifications/initialized", nil)})
		}
		if err == nil {
			b.adopt(s)
			return
		}
		b.log.Debug("no session could be opened", "err", err)
		b.note(err)
		pause.heed(err)
		if !pause.wait(ctx) {
			return
		}
	}
}

// note keeps err if no call needs to wait for what caused it to pass.
func (b *bridge) note(err error) {
	if !errors.Is(err, errForbidden) {
		err = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = err
	b.bump()
}

// post hands m over, which has no answer.
func (b *bridge) post(ctx context.Context, s *session, m *message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limits.note, errSilent)
	defer cancel()
	r, err := b.try(ctx, http.MethodPost, s, m, "")
	if errors.Is(err, errUnknown) {
		b.lose(s)
	}
	if err != nil {
		return err
	}
	if r.StatusCode/100 != 2 {
		return refusal(r)
	}
	return r.Body.Close()
}
