package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// masks are the secrets of the sandbox as everything masks them that is no
// terminal.
type masks struct {
	set atomic.Pointer[redact.Set] // nil: none
}

// stream returns a masker for one stream of bytes.
func (m *masks) stream() *redact.Stream { return m.set.Load().NewStream() }

// mask returns text without secrets; it may be text itself.
func (m *masks) mask(text []byte) []byte { return m.set.Load().Mask(text) }

// A maskedHandler masks secrets in what is logged: an error may quote what a
// program or a server said.
type maskedHandler struct {
	next  slog.Handler
	masks *masks
}

func (h maskedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h maskedHandler) Handle(ctx context.Context, r slog.Record) error {
	set := h.masks.set.Load()
	if set.Empty() {
		return h.next.Handle(ctx, r)
	}
	masked := slog.NewRecord(r.Time, r.Level, mask(set, r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(maskAttr(set, a))
		return true
	})
	return h.next.Handle(ctx, masked)
}

func (h maskedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	set := h.masks.set.Load()
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = maskAttr(set, a)
	}
	return maskedHandler{h.next.WithAttrs(masked), h.masks}
}

func (h maskedHandler) WithGroup(name string) slog.Handler {
	return maskedHandler{h.next.WithGroup(name), h.masks}
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
		return slog.String(a.Key, mask(set, value.String()))
	case slog.KindAny:
		text := fmt.Sprint(value.Any())
		if masked := mask(set, text); masked != text {
			return slog.String(a.Key, masked)
		}
	}
	return slog.Attr{Key: a.Key, Value: value}
}

func mask(set *redact.Set, text string) string { return string(set.Mask([]byte(text))) }
