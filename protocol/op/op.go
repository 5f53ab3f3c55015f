// Package op defines the operations of signed commands, each once: its kind,
// the required capability, the form of its target, its members, and what it
// waits for.
//
// An op is a JSON object with a member "kind" and the members of its [Body]. To
// add an operation, add its [Spec] to the family's list, a row to the table in
// ../README.md, and a handler in its executor.
package op

import (
	"bytes"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// A Spec defines the operations of one kind.
type Spec struct {
	Kind   string              // op.kind
	Needs  protocol.Capability // required of whoever asks for it
	Target Target
	Lane   Lane
	Own    bool // only the control plane issues it
	Body   Body // a nil pointer of the signed body's type
	Asked  Body // a nil pointer of the requested body's type; nil: the same
}

// A Body holds the members of an op besides "kind".
type Body interface {
	// Check reports what is wrong with the body, whoever made it. Its errors are
	// of kind invalid or too_large.
	Check() error
}

// An Asker is a Body with extra rules for a person's request.
type Asker interface {
	Body
	// AskedBy completes the body. It returns the capabilities that its members
	// need beyond [Spec.Needs]. It fails with KindForbidden for what nobody may
	// request.
	AskedBy(user protocol.UserID) (also []protocol.Capability, err error)
}

// A Completer is a Body that names a part of the target, or from which one
// follows.
type Completer interface {
	Body
	// Complete fills that in. It fails with KindInvalid if the target names something
	// else.
	Complete(t *protocol.CommandTarget) error
}

// A Concealer is a requested Body with values that only the sandbox may read.
type Concealer interface {
	Body
	// Conceal returns the values, nil if there are none, and what makes the body
	// as it is signed of the box in which they are.
	Conceal() (values any, signed func(box []byte) Body)
}

// Plain is the body of an operation without members.
type Plain struct{}

// Check accepts everything.
func (Plain) Check() error { return nil }

// A Target is the form of an operation's target.
type Target uint8

const (
	TargetSandbox           Target = iota // the sandbox alone
	TargetNewSession                      // the sandbox alone; the control plane makes the session's id
	TargetSession                         // a session
	TargetNewTerminal                     // a session, and perhaps the id for the new terminal
	TargetTerminal                        // a terminal of a session
	TargetSessionOrTerminal               // a session, or one terminal of it
	TargetBrowser                         // a session's own browser, or a browser extension under the session
)

// A Lane says which earlier commands a command waits for. Commands of one lane
// run in their order of arrival.
type Lane uint8

const (
	LaneTerminal Lane = iota // those of its terminal, and those of the whole session
	LaneSession              // all of the session except decisions
	LaneScope                // as LaneTerminal if the target names a terminal, else as LaneSession
	LaneEnd                  // all of the session: it is the last one
	LaneDecision             // other decisions of the session, and its end: a connection waits for it
	LaneFree                 // none
)

// AskedBy completes b, which user requests, and returns all required
// capabilities. Its errors are those of [Asker].
func (s Spec) AskedBy(user protocol.UserID, b Body) (needs []protocol.Capability, err error) {
	needs = []protocol.Capability{s.Needs}
	if asker, ok := b.(Asker); ok {
		also, err := asker.AskedBy(user)
		return append(needs, also...), err
	}
	return needs, nil
}

// Conceals reports whether requests for the operation have values that only the
// sandbox may read.
func (s Spec) Conceals() bool {
	_, conceals := s.Asked.(Concealer)
	return conceals
}

// An Op is an operation, requested or signed.
type Op struct {
	Kind string
	Body Body // nil: it has no members
}

// MarshalJSON writes the kind, followed by the members of the body.
func (o Op) MarshalJSON() ([]byte, error) {
	if o.Body == nil {
		o.Body = Plain{}
	}
	name, err := json.Marshal(o.Kind)
	if err != nil {
		return nil, err
	}
	members, err := json.Marshal(o.Body)
	if err != nil {
		return nil, err
	}
	raw := append([]byte(`{"kind":`), name...)
	if rest := bytes.TrimPrefix(members, []byte("{")); !bytes.Equal(rest, []byte("}")) {
		raw = append(append(raw, ','), rest...)
	} else {
		raw = append(raw, '}')
	}
	return raw, nil
}
