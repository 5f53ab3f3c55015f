package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	someTrace  = "0af7651916cd43dd8448eb211c80319c"
	someSpan   = "b7ad6b7169203331"
	someParent = "00-" + someTrace + "-" + someSpan + "-01"
)

func TestTraceparent(t *testing.T) {
	ids := someTrace + "-" + someSpan
	for _, c := range []struct{ name, text, want string }{
		{"sampled", someParent, someParent},
		{"not sampled", "00-" + ids + "-00", "00-" + ids + "-00"},
		{"random", "00-" + ids + "-03", "00-" + ids + "-03"},
		{"flags of later", "00-" + ids + "-ff", "00-" + ids + "-03"},
		{"later version", "cc-" + ids + "-01", someParent},
		{"later version with more", "cc-" + ids + "-01-what-the-future-brings", someParent},
		{"later version, as long as may be", "cc-" + ids + "-01-" + strings.Repeat("x", protocol.MaxTraceparentBytes-parentLen-1), someParent},

		{"nothing", "", ""},
		{"words", strings.Repeat("no", 30), ""},
		{"too short", someParent[:len(someParent)-1], ""},
		{"more in version 00", someParent + "-00", ""},
		{"a space after it", someParent + " ", ""},
		{"a space before it", " " + someParent, ""},
		{"later version, too long", "cc-" + ids + "-01-" + strings.Repeat("x", protocol.MaxTraceparentBytes-parentLen), ""},
		{"later version, no separator", "cc-" + ids + "-01x", ""},
		{"version ff", "ff-" + ids + "-01", ""},
		{"version of other digits", "0x-" + ids + "-01", ""},
		{"capitals", strings.ToUpper(someParent), ""},
		{"no trace", "00-" + strings.Repeat("0", 32) + "-" + someSpan + "-01", ""},
		{"no span", "00-" + someTrace + "-" + strings.Repeat("0", 16) + "-01", ""},
		{"other digits in the trace", "00-" + strings.Repeat("g", 32) + "-" + someSpan + "-01", ""},
		{"other digits in the span", "00-" + someTrace + "-" + strings.Repeat("g", 16) + "-01", ""},
		{"other flags", "00-" + ids + "-0g", ""},
		{"other separators", strings.ReplaceAll(someParent, "-", "_"), ""},
		{"several", someParent + "," + someParent, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Inject(Extract(t.Context(), c.text)); got != c.want {
				t.Errorf("%q becomes %q, want %q", c.text, got, c.want)
			}
		})
	}
}

// A bad one doesn't take the place of a good one.
func TestABadOneIsIgnored(t *testing.T) {
	ctx := Extract(t.Context(), someParent)
	if got := Inject(Extract(ctx, "00-0")); got != someParent {
		t.Errorf("it became %q", got)
	}
}

// Where nothing is exported, the next program continues the one before.
func TestPassedOn(t *testing.T) {
	ctx := Extract(t.Context(), someParent)
	ctx, outer := Serve(ctx, "outer", Operation(op.KindPTYCreate))
	ctx, inner := Start(ctx, "inner")
	ctx, call := Call(ctx, "call", Relay("rl_1"))
	if got := Inject(ctx); got != someParent {
		t.Errorf("%q is passed on", got)
	}
	if outer.Recording() || call.Recording() {
		t.Error("somebody records")
	}
	outer.Set(Operation("x"))
	call.End(nil)
	inner.End(errors.New("x"))
	outer.End(nil)
	Span{}.Set(Relay("x"))
	Span{}.End(nil)
	if _, span := Start(t.Context(), "root"); span.Recording() || Inject(t.Context()) != "" {
		t.Error("a trace out of nothing")
	}
}

// Whatever comes from elsewhere, an attribute holds no contents.
func TestAttributes(t *testing.T) {
	for _, c := range []struct {
		attribute Attribute
		want      string
	}{
		{Operation(op.KindAgentStart), op.KindAgentStart},
		{Operation("rm -rf /"), other},
		{Operation(""), other},
		{Relay("rl_1"), "rl_1"},
		{Relay("not an id"), other},
		{outcome(nil), ok},
		{outcome(errors.New("secret")), "internal"},
		{outcome(fmt.Errorf("x: %w", protocol.Errorf(protocol.KindTooMany, "secret"))), "too_many"},
	} {
		if c.attribute.value != c.want {
			t.Errorf("%+v, want %q", c.attribute, c.want)
		}
	}
}

// FuzzTraceparent: what is taken is itself a traceparent of version 00, the same
// again, and made of the text's own ids.
func FuzzTraceparent(f *testing.F) {
	f.Add(someParent)
	f.Add("cc-" + someTrace + "-" + someSpan + "-ff-more")
	f.Add("00-" + someTrace + "-" + someSpan + "-0")
	f.Add(strings.Repeat("0", parentLen))
	f.Fuzz(func(t *testing.T, text string) {
		got := Inject(Extract(t.Context(), text))
		if got == "" {
			return
		}
		if len(got) != parentLen || Inject(Extract(t.Context(), got)) != got {
			t.Fatalf("%q becomes %q, which is none", text, got)
		}
		if got[traceAt:flagsAt] != text[traceAt:flagsAt] {
			t.Fatalf("%q becomes %q", text, got)
		}
	})
}
