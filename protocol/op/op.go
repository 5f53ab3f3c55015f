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
	"errors"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// A Spec is all that there is to know about the operations of one kind.
type Spec struct {
	Kind   string              // op.kind
	Needs  protocol.Capability // of whoever asks for it
	Target Target
	Lane   Lane
	Own    bool        // the control plane alone makes it
	Body   func() Body // an empty one, as it is signed
	Asked  func() Body // an empty one, as people ask for it; nil: as it is signed
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

func plain() Body { return &Plain{} }

// body returns the function that makes an empty T.
func body[T any, P interface {
	*T
	Body
}]() func() Body {
	return func() Body { return P(new(T)) }
}

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

// Specs are the operations, by family.
var Specs = slices.Concat(sessions, terminals, agents, authority, browser, environment, approvals)

var byKind = index(Specs)

func index(specs []Spec) map[string]Spec {
	m := make(map[string]Spec, len(specs))
	for _, s := range specs {
		m[s.Kind] = s
	}
	return m
}

// Lookup returns the operation of a kind, false for an unknown one.
func Lookup(kind string) (Spec, bool) {
	s, known := byKind[kind]
	return s, known
}

// KindOf returns the kind of an op, "" when raw is no object or has none. A member
// "Kind" is none, though encoding/json would take it for one.
func KindOf(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	var kind string
	if json.Unmarshal(raw, &members) != nil || json.Unmarshal(members["kind"], &kind) != nil {
		return ""
	}
	return kind
}

// Decode returns the operation of a signed op, and its body, which is checked.
// It is strict at every depth: each member is known, in exact letter case, and
// named once. It fails with KindUnsupported for an unknown kind, and with
// KindInvalid or what [Body.Check] says for anything else that is wrong. An error
// quotes no value: one of them may be a secret.
func Decode(raw json.RawMessage) (Spec, Body, error) {
	spec, known := byKind[KindOf(raw)]
	if !known {
		return spec, nil, unknown(raw)
	}
	b := spec.Body()
	if err := decode(raw, b); err != nil {
		return spec, nil, err
	}
	return spec, b, nil
}

// DecodeAsked is [Decode] for what a person asks for: the body has the form of
// [Spec.Asked].
func DecodeAsked(raw json.RawMessage) (Spec, Body, error) {
	spec, known := byKind[KindOf(raw)]
	if !known {
		return spec, nil, unknown(raw)
	}
	form := spec.Asked
	if form == nil {
		form = spec.Body
	}
	b := form()
	if err := decode(raw, b); err != nil {
		return spec, nil, err
	}
	return spec, b, nil
}

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

func unknown(raw json.RawMessage) error {
	return protocol.Errorf(protocol.KindUnsupported, "unknown operation %.64q", KindOf(raw))
}

func decode(raw json.RawMessage, b Body) error {
	if err := protocol.CheckDistinct(raw); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	if err := protocol.UnmarshalStrict(raw, b, "kind"); err != nil {
		// encoding/json quotes a number that stands where something else belongs.
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return protocol.Errorf(protocol.KindInvalid, "op: %s has the wrong type", e.Field)
		}
		return protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	return b.Check()
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

// Names returns the names of all members that an op can have, as JSON spells
// them, in no order.
func Names() []string {
	names := []string{"kind"}
	for _, s := range Specs {
		names = append(names, protocol.MemberNames(s.Body())...)
		if s.Asked != nil {
			names = append(names, protocol.MemberNames(s.Asked())...)
		}
	}
	return names
}

// Needs returns the capability that operations of a kind need of whoever asks for
// them, "" for an unknown kind.
func Needs(kind string) protocol.Capability { return byKind[kind].Needs }
