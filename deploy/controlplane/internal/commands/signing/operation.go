package signing

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// An Operation is what a command is to do, with nothing in it that we don't
// know.
type Operation struct {
	Kind   string
	Op     json.RawMessage // as it is signed; with values that are to be sealed, until seal
	Target protocol.CommandTarget
	TTLMs  int64
	Needs  []protocol.Capability // all of them
}

// audience says who executes the operation.
func (o *Operation) audience() string {
	if o.Target.ExtensionID != "" {
		return jws.AudienceExtension
	}
	return jws.AudienceAgent
}

// Parse checks what user wants done. An operation that this version
// doesn't know is KindUnsupported, everything else that is wrong KindInvalid,
// and what no user may have done in this way KindForbidden. The op is encoded
// anew, so that what is signed is exactly what was checked.
func Parse(raw json.RawMessage, t Target, ttlMs *int64, user protocol.UserID) (Operation, error) {
	spec, err := asked(raw)
	if err != nil {
		return Operation{}, err
	}
	o := Operation{Kind: spec.Kind, TTLMs: protocol.DefaultCommandTTL.Milliseconds()}
	if ttlMs != nil {
		o.TTLMs = *ttlMs
	}
	if o.TTLMs <= 0 || o.TTLMs > protocol.MaxCommandTTL.Milliseconds() {
		return o, protocol.Errorf(protocol.KindInvalid, "ttlMs must be from 1 to %d", protocol.MaxCommandTTL.Milliseconds())
	}
	if o.Target, err = t.resolve(); err != nil {
		return o, err
	}
	_, body, err := op.DecodeAsked(raw)
	if err != nil {
		return o, err
	}
	if names, ok := body.(op.Completer); ok {
		if err := names.Complete(&o.Target); err != nil {
			return o, err
		}
	}
	if err := checkTarget(spec, o.Target); err != nil {
		return o, err
	}
	if o.Needs, err = spec.AskedBy(user, body); err != nil {
		return o, err
	}
	o.Op, err = json.Marshal(op.Op{Kind: spec.Kind, Body: body})
	return o, err
}

// asked returns what is known of an operation that people may ask for.
func asked(raw json.RawMessage) (op.Spec, error) {
	var plain struct {
		Kind string `json:"kind"`
	}
	if err := protocol.UnmarshalObject(raw, &plain); err != nil {
		return op.Spec{}, protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	spec, known := op.Lookup(plain.Kind)
	switch {
	case plain.Kind == "":
		return spec, protocol.Errorf(protocol.KindInvalid, "op.kind is missing")
	case !known:
		return spec, protocol.Errorf(protocol.KindUnsupported, "unknown operation %q", plain.Kind)
	case spec.Kind == op.KindGrantRevoke:
		return spec, protocol.Errorf(protocol.KindForbidden, "%s is made by the control plane alone: see DELETE /grants/{id}", spec.Kind)
	case spec.Own:
		return spec, protocol.Errorf(protocol.KindForbidden, "%s is made by the control plane alone", spec.Kind)
	}
	return spec, nil
}
