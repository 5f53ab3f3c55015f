package op

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/fairlead/fairlead/protocol"
)

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
	b := empty(spec.Body)
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
	b := empty(form)
	if err := decode(raw, b); err != nil {
		return spec, nil, err
	}
	return spec, b, nil
}

// empty makes a body of a type.
func empty(of Body) Body { return reflect.New(reflect.TypeOf(of).Elem()).Interface().(Body) }

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
