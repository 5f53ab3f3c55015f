// Package op defines the operations that a signed command can carry, each once:
// its kind, the capability it needs, the form of its target, the members that it
// has, and what it waits for.
//
// An op is a JSON object with a member "kind" and the members of its [Body]. To
// add an operation, add its [Spec] to the family's list, a row to the table in
// ../README.md, and a handler in the executor that carries it out.
package op

import (
	"bytes"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// A Spec is all that there is to know about the operations of one kind.
type Spec struct {
	Kind   string              // op.kind
	Needs  protocol.Capability // of whoever asks for it
	Target Target
	Lane   Lane
	Own    bool // the control plane alone makes it
	Body   Body // its type, as it is signed: a nil pointer
	Asked  Body // its type, as people ask for it; nil: as it is signed
}

// A Body holds the members of an op beside "kind".
type Body interface {
	// Check says what is wrong with the body, whoever made it. Its errors are of
	// kind invalid, or too_large.
	Check() error
}

// An Asker is a Body of which more is to be said when a person asks for it.
type Asker interface {
	Body
	// AskedBy completes the body. It returns the capabilities that its members
	// need beyond [Spec.Needs]. It fails with KindForbidden for what nobody may
	// ask for.
	AskedBy(user protocol.UserID) (also []protocol.Capability, err error)
}

// Plain is the body of an operation without members.
type Plain struct{}

// Check finds nothing wrong.
func (Plain) Check() error { return nil }

// A Target says which ids the target of an operation has.
type Target uint8

const (
	TargetSandbox           Target = iota // the sandbox alone
	TargetNewSession                      // the sandbox alone; the control plane makes the session's id
	TargetSession                         // a session
	TargetNewTerminal                     // a session, and perhaps the id of a terminal to be
	TargetTerminal                        // a terminal of a session
	TargetSessionOrTerminal               // a session, or one terminal of it
	TargetBrowser                         // a session's own browser, or a browser extension under the session
)

// A Lane says which other commands a command waits for. Commands of one lane run
// in the order of their arrival.
type Lane uint8

const (
	LaneTerminal Lane = iota // those of its terminal, and those of the whole session
	LaneSession              // all of the session but decisions
	LaneScope                // as LaneTerminal if the target names a terminal, else as LaneSession
	LaneEnd                  // all of the session: nothing follows
	LaneDecision             // other decisions about the session, and its end: somebody's connection hangs until it has run
	LaneFree                 // none
)

// AskedBy completes b, which user asks for, and returns all the capabilities that
// it needs. Its errors are those of [Asker].
func (s Spec) AskedBy(user protocol.UserID, b Body) (needs []protocol.Capability, err error) {
	needs = []protocol.Capability{s.Needs}
	if asker, ok := b.(Asker); ok {
		also, err := asker.AskedBy(user)
		return append(needs, also...), err
	}
	return needs, nil
}

// An Op is an operation that somebody asks for, or that is signed.
type Op struct {
	Kind string
	Body Body // nil: it has no members
}

// MarshalJSON writes the kind, and the members of the body behind it.
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
