// Package mask hides the sandbox's secrets in everything that shows text beside
// terminals: answers, files, and the agent's own log.
package mask

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// Secrets are what is to be hidden at the moment. They are safe for concurrent
// use; the zero value and a nil pointer hide nothing.
type Secrets struct {
	set       atomic.Pointer[redact.Set] // nil: none
	listeners []Listener                 // static once secrets change
}

// A Listener keeps what must not show secrets.
type Listener interface {
	// SetSecrets has the secrets of set hidden, and no others. When it returns none
	// of them is shown.
	SetSecrets(set *redact.Set)
}

// Listen has l told of each change, before Change returns. It must be called
// before the first one.
func (s *Secrets) Listen(l Listener) { s.listeners = append(s.listeners, l) }

// Change has these secrets hidden from now on, and no others, and returns what
// finds them. It fails with KindTooMany or KindInvalid, and changes nothing then.
func (s *Secrets) Change(secrets []string) (*redact.Set, error) {
	set, err := redact.Compile(secrets)
	switch {
	case errors.Is(err, redact.ErrTooMany):
		return nil, protocol.Errorf(protocol.KindTooMany, "%w", redact.ErrTooMany)
	case err != nil:
		return nil, protocol.Errorf(protocol.KindInvalid, "a secret is too short to be masked, without what can't be seen of it")
	}
	s.set.Store(set)
	for _, l := range s.listeners {
		l.SetSecrets(set)
	}
	return set, nil
}

func (s *Secrets) current() *redact.Set {
	if s == nil {
		return nil
	}
	return s.set.Load()
}

// Set finds the secrets; it is nil where there are none.
func (s *Secrets) Set() *redact.Set { return s.current() }

// Stream returns a masker for one stream of bytes.
func (s *Secrets) Stream() *redact.Stream { return s.current().NewStream() }

// Mask returns text without secrets; it may be text itself.
func (s *Secrets) Mask(text []byte) []byte { return s.current().Mask(text) }

// Handler masks secrets in what is logged by next: an error may quote what a
// program or a server said.
func (s *Secrets) Handler(next slog.Handler) slog.Handler { return handler{next, s} }

type handler struct {
	next    slog.Handler
	secrets *Secrets
}

func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	set := h.secrets.current()
	if set.Empty() {
		return h.next.Handle(ctx, r)
	}
	masked := slog.NewRecord(r.Time, r.Level, maskText(set, r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(maskAttr(set, a))
		return true
	})
	return h.next.Handle(ctx, masked)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	set := h.secrets.current()
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = maskAttr(set, a)
	}
	return handler{h.next.WithAttrs(masked), h.secrets}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{h.next.WithGroup(name), h.secrets}
}

// maskAttr returns a with its text masked. What holds no secret stays as it is.
func maskAttr(set *redact.Set, a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		var members []slog.Attr
		for _, member := range value.Group() {
			members = append(members, maskAttr(set, member))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(members...)}
	case slog.KindString:
		return slog.String(a.Key, maskText(set, value.String()))
	case slog.KindAny:
		text := fmt.Sprint(value.Any())
		if masked := maskText(set, text); masked != text {
			return slog.String(a.Key, masked)
		}
	}
	return slog.Attr{Key: a.Key, Value: value}
}

func maskText(set *redact.Set, text string) string { return string(set.Mask([]byte(text))) }
