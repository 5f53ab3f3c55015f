package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"time"
)

// errSilent ends a call of which the server says nothing.
var errSilent = errors.New("the agent has not answered in time; what was asked may have been done")

// errCancelled ends a call that the program has cancelled.
var errCancelled = errors.New("cancelled")

// A call is a message of the program's that wants one answer, or several.
type call struct {
	// Static after construction.
	message *message
	token   string // by which the server speaks of its progress; "" for none
	endless bool   // it is to listen, for as long as may be
	cancel  context.CancelCauseFunc
	settled latch // the next message of the program's can't overtake it

	// Owned by exchange.
	fault json.RawMessage // what the server said to no id in particular

	// Guarded by the bridge's mu.
	open  map[string]json.RawMessage // ids that want an answer
	sent  bool
	quiet bool        // the program wants no answer any more
	timer *time.Timer // ends it when the server is silent
}

// begin starts a call, and returns when it was sent or waits for the agent.
func (b *bridge) begin(ctx context.Context, m *message) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{message: m, cancel: cancel, settled: newLatch(), open: make(map[string]json.RawMessage)}
	for _, one := range m.calls() {
		c.open[one.id] = one.rawID
		c.endless = c.endless || one.method == "subscriptions/listen"
	}
	if m.batch == nil {
		c.token = spell(m.member("_meta", "progressToken"))
	}
	if err := b.register(c); err != nil {
		for _, one := range m.calls() {
			b.write(failure(one.rawID, codeInvalid, err.Error()))
		}
		cancel(nil)
		return
	}
	b.running.Go(func() {
		defer cancel(nil)
		err := b.exchange(ctx, c)
		c.settled.happen()
		b.finish(c, err)
	})
	select {
	case <-c.settled.c:
	case <-ctx.Done():
	}
}

func (b *bridge) register(c *call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls)+len(c.open) > b.limits.calls {
		return fmt.Errorf("over %d calls wait for their answers", b.limits.calls)
	}
	for id := range c.open {
		if b.calls[id] != nil {
			return errors.New("a call of this id waits for its answer")
		}
	}
	for id := range c.open {
		b.calls[id] = c
	}
	return nil
}

// claim reports whether the answer to id is still to be given, and takes the call
// for answered.
func (b *bridge) claim(c *call, id string) (rawID json.RawMessage, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rawID, ok = c.open[id]; !ok {
		return nil, false
	}
	delete(c.open, id)
	delete(b.calls, id)
	if len(b.calls) == 0 {
		b.bump()
	}
	return rawID, true
}

// finish answers what err has left open.
func (b *bridge) finish(c *call, err error) {
	b.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
	}
	quiet := c.quiet
	b.mu.Unlock()
	if errors.Is(err, context.Canceled) {
		err = errLeaving
	}
	for _, one := range c.message.calls() {
		if rawID, ok := b.claim(c, one.id); ok && !quiet {
			b.write(fault(rawID, err))
		}
	}
}

// fault returns the answer to a call that ended with err, in the server's words
// if it had some.
func fault(id json.RawMessage, err error) []byte {
	var r *refused
	if errors.As(err, &r) && r.fault != nil {
		m, err := json.Marshal(struct {
			Version string          `json:"jsonrpc"`
			ID      json.RawMessage `json:"id"`
			Error   json.RawMessage `json:"error"`
		}{"2.0", id, r.fault})
		if err == nil {
			return m
		}
	}
	return failure(id, codeFailed, err.Error())
}

// exchange sends c and passes its answers on. It waits for an agent that isn't
// there. The error says why not all is answered.
func (b *bridge) exchange(ctx context.Context, c *call) error {
	wait, cancel := context.WithTimeoutCause(ctx, b.limits.away, errAway)
	defer cancel()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { c.settled.happen() },
	})
	pause := b.newPause()
	for {
		s, err := &session{}, error(nil)
		if c.message.version == "" {
			s, err = b.usable(wait, c.settled.happen)
		}
		if err != nil {
			return err
		}
		if !b.sending(ctx, c, true) {
			return context.Cause(ctx)
		}
		r, err := b.try(traced, http.MethodPost, s, c.message, "")
		switch {
		case errors.Is(err, errUnknown):
			b.lose(s)
		case errors.Is(err, errAway):
		case err != nil:
			return err
		case r.StatusCode != http.StatusOK:
			return refusal(r)
		default:
			return b.receive(ctx, s, c, r)
		}
		if !b.sending(ctx, c, false) {
			return cmp.Or(context.Cause(ctx), errCancelled)
		}
		c.settled.happen()
		if !pause.wait(wait) {
			return context.Cause(wait)
		}
	}
}

// sending notes whether the server may have c, and lets the time run in which it
// must say something. It returns false for one that was cancelled and that the
// server hasn't.
func (b *bridge) sending(ctx context.Context, c *call, sent bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil || c.quiet && (!sent || !c.sent) {
		return false
	}
	c.sent = sent
	switch {
	case c.endless:
	case !sent:
		c.timer.Stop()
	case c.timer == nil:
		c.timer = time.AfterFunc(b.limits.silence, func() { c.cancel(errSilent) })
	default:
		c.timer.Reset(b.limits.silence)
	}
	return true
}

// seen notes that the server has said something about c.
func (b *bridge) seen(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.timer != nil && !c.quiet {
		c.timer.Reset(b.limits.silence)
	}
}

// receive passes on what r says about c, and what follows when r breaks off and
// can be resumed.
func (b *bridge) receive(ctx context.Context, s *session, c *call, r *http.Response) error {
	var at cursor
	for {
		err := b.messages(r, &at, func() { b.seen(c) }, func(m *message) bool {
			return b.answer(ctx, s, c, m)
		})
		switch {
		case err == nil && c.fault != nil:
			return &refused{status: r.StatusCode, fault: c.fault}
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errEventTooLong) || errors.Is(err, errGarbage):
			return err
		case at.id == "":
			return errBroken
		}
		if r, err = b.resume(ctx, s, at); err != nil { //nolint:bodyclose // messages closes it
			return err
		}
	}
}

// resume opens the stream again that has ended at a cursor.
func (b *bridge) resume(ctx context.Context, s *session, at cursor) (*http.Response, error) {
	wait, cancel := context.WithTimeoutCause(ctx, b.limits.away, errBroken)
	defer cancel()
	pause := b.newPause()
	pause.after(at.retry, 0)
	for pause.wait(wait) {
		r, err := b.try(ctx, http.MethodGet, s, nil, at.id)
		switch {
		case errors.Is(err, errUnknown):
			b.lose(s)
			return nil, errBroken
		case err != nil: // it was only asked to go on
		case r.StatusCode == http.StatusOK:
			return r, nil
		default:
			if e := refusal(r); e.status != http.StatusConflict {
				return nil, errBroken
			}
		}
	}
	return nil, context.Cause(wait)
}

// answer passes on m, which came as an answer to c, or before one. It returns
// true when all are there.
func (b *bridge) answer(ctx context.Context, s *session, c *call, m *message) bool {
	if !m.isReply() {
		b.hear(ctx, s, m)
		return false
	}
	if m.batch == nil && m.id == "" {
		c.fault = m.fault
		return c.fault != nil
	}
	wanted := false
	for _, one := range m.parts() {
		_, ok := b.claim(c, one.id)
		wanted = wanted || ok
	}
	if wanted {
		b.write(m.raw)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(c.open) == 0
}

// cancelled passes on that the program wants no answer to a call any more. It
// has been sent to the server, or never will be.
func (b *bridge) cancelled(ctx context.Context, m *message) {
	b.mu.Lock()
	c := b.calls[spell(m.member("requestId"))]
	if c != nil {
		c.quiet = true
		if !c.sent {
			c.cancel(errCancelled)
			b.mu.Unlock()
			return
		}
		if c.timer != nil {
			c.timer.Reset(b.limits.note) // a cancelled call needs no answer
		}
	}
	b.mu.Unlock()
	b.notify(ctx, m)
	if c == nil {
		return
	}
	// On its own connection it may have overtaken the call, and was ignored.
	b.running.Go(func() {
		select {
		case <-time.After(b.limits.again):
		case <-ctx.Done():
		}
		b.mu.Lock()
		open := len(c.open) > 0
		b.mu.Unlock()
		if open && ctx.Err() == nil {
			b.notify(ctx, m)
		}
	})
}
