package op

import (
	"encoding/json"
	"errors"
	"reflect"

	"github.com/fairlead/fairlead/protocol"
)

// KindOf returns the kind of an op, "" if raw is no object or has none. Unlike
// encoding/json it doesn't accept "Kind".
func KindOf(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	var kind string
	if json.Unmarshal(raw, &members) != nil || json.Unmarshal(members["kind"], &kind) != nil {
		return ""
	}
	return kind
}

// Decode returns the operation of a signed op, and its checked body. It is
// strict at every depth: each member must be known, in exact letter case, and
// unique. It fails with KindUnsupported for an unknown kind, otherwise with
// KindInvalid or the error of [Body.Check]. Errors quote no values, as one may
// be a secret.
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

// DecodeAsked is [Decode] for a person's request: the body has the form of
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
		// encoding/json's error would quote a number of the wrong type.
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return protocol.Errorf(protocol.KindInvalid, "op: %s has the wrong type", e.Field)
		}
		return protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	return b.Check()
}
