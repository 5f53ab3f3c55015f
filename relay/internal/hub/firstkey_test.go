package hub

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// vacant is an executing whose terminal nobody controls, after term 2.
func vacant(t *testing.T, numbered bool) *executing {
	t.Helper()
	e := newExecuting(t)
	if numbered {
		e.numbers()
	}
	e.leased(protocol.Lease{Revision: 4, Term: 2, State: protocol.LeaseFree})
	told(t, e.v)
	return e
}

// TestFound16TheFirstKeyIsNotLost: it takes the free terminal, and it and what is
// typed behind it are written under the term that begins with that.
func TestFound16TheFirstKeyIsNotLost(t *testing.T) {
	for name, numbered := range map[string]bool{"plain": false, "numbered": true} {
		t.Run(name, func(t *testing.T) {
			e := vacant(t, numbered)
			types := func(seq uint64, text string, term uint64) {
				if !numbered {
					e.types(seq, text)
					return
				}
				e.v.TypeNumbered(protocol.BrowserInput{Seq: seq, Term: term, Bytes: []byte(text)})
			}
			types(1, "a", protocol.FreeTerm(2))
			types(2, "b", protocol.FreeTerm(2))
			e.quiet()
			e.h.heed()
			types(3, "c", protocol.FreeTerm(2))
			e.quiet()
			e.leased(held(5, 3)) // another's word first
			e.h.answer(protocol.Leased{ID: 1, Lease: held(5, 3)})
			types(4, "d", protocol.FreeTerm(2)) // before its client knew
			types(5, "e", 3)
			got := ""
			for _, in := range e.inputs() {
				if in.Term != 3 {
					t.Errorf("%+v", in)
				}
				got += fmt.Sprint(in.Seq)
			}
			if got != "12345" {
				t.Errorf("passed on %q", got)
			}
			e.drops("")
		})
	}
}

// TestFound16WhatTakesNothing: input that was typed under control that is lost, a
// viewer's, an execute's, and what is refused by the agent or too late.
func TestFound16WhatTakesNothing(t *testing.T) {
	numbered := func(e *executing, seq, term uint64) {
		e.v.TypeNumbered(protocol.BrowserInput{Seq: seq, Term: term, Bytes: []byte("x")})
	}
	for name, c := range map[string]struct {
		do   func(e *executing)
		want string
	}{
		"of the term that is over":    {func(e *executing) { numbered(e, 1, 2) }, "1 not_controller;"},
		"of an earlier free terminal": {func(e *executing) { numbered(e, 1, protocol.FreeTerm(1)) }, "1 not_controller;"},
		"of a later one":              {func(e *executing) { numbered(e, 1, protocol.FreeTerm(3)) }, "1 stale_term;"},
		"an execute":                  {func(e *executing) { e.v.Execute("x") }, "0 not_controller;"},
		"another was faster": {func(e *executing) {
			numbered(e, 1, protocol.FreeTerm(2))
			numbered(e, 2, protocol.FreeTerm(2))
			e.leased(protocol.Lease{Revision: 5, Term: 3, Holder: "usr_bob", GrantID: "gr_b", State: protocol.LeaseHeld})
			e.h.heed()
		}, "1 not_controller;2 not_controller;"},
		"the agent refuses": {func(e *executing) {
			numbered(e, 1, protocol.FreeTerm(2))
			e.h.heed()
			e.h.answer(protocol.Leased{ID: 1, Lease: protocol.Lease{Revision: 4, Term: 2, State: protocol.LeaseFree}, Refused: "no"})
		}, "1 stale_term;"},
		"the sandbox goes away": {func(e *executing) {
			numbered(e, 1, protocol.FreeTerm(2))
			e.h.heed()
			e.h.unlinked(nil)
		}, "1 waiting;"},
		"it leaves": {func(e *executing) {
			numbered(e, 1, protocol.FreeTerm(2))
			e.h.audience.leave(e.v)
			e.h.heed()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := vacant(t, true)
			c.do(e)
			e.h.heed()
			e.quiet()
			if e.h.link != nil {
				e.drops(c.want)
			}
			if n := e.h.typing.Undecided(); n > 0 || e.v.keys.Waiting() > 0 {
				t.Errorf("%d still wait", n)
			}
		})
	}
}
