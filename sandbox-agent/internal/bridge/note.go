package bridge

import (
	"context"
)

// notify passes on a message of the program's that wants no answer. While the
// server isn't there it is dropped: it was about what is gone as well.
func (b *bridge) notify(ctx context.Context, m *message) {
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	if s == nil || m.version != "" {
		s = &session{}
	}
	if s.isLost() {
		return
	}
	if err := b.post(ctx, s, m); err != nil {
		b.log.Debug("a message without an answer was dropped", "method", m.method, "err", err)
	}
}

// hear passes on what the server says in s without being asked.
func (b *bridge) hear(ctx context.Context, s *session, m *message) {
	for _, one := range m.parts() {
		switch {
		case one.method == "":
			b.log.Debug("the server answered what was not asked")
		case one.id != "":
			b.ask(ctx, s, one)
		case one.method == "notifications/cancelled":
			b.withdraw(s, one)
		case one.method == "notifications/progress":
			b.progress(spell(one.member("progressToken")))
			b.write(one.raw)
		default:
			b.write(one.raw)
		}
	}
}

// progress notes that the call of a token goes on.
func (b *bridge) progress(token string) {
	b.mu.Lock()
	var of *call
	for _, c := range b.calls {
		if token != "" && c.token == token {
			of = c
		}
	}
	b.mu.Unlock()
	if of != nil {
		b.seen(of)
	}
}
