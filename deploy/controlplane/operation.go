package controlplane

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// A target is a command's target as a caller may spell it.
type target struct {
	SandboxID  protocol.SandboxID `json:"sandboxId"`
	SessionID  protocol.SessionID `json:"sessionId"`
	PTYID      protocol.PTYID     `json:"ptyId"`
	SandboxID2 protocol.SandboxID `json:"sandbox_id"`
	SessionID2 protocol.SessionID `json:"session_id"`
	PTYID2     protocol.PTYID     `json:"pty_id"`
}

func (t *target) resolve() (protocol.CommandTarget, error) {
	sandbox, err := either("sandboxId", t.SandboxID, t.SandboxID2)
	if err != nil {
		return protocol.CommandTarget{}, err
	}
	session, err := either("sessionId", t.SessionID, t.SessionID2)
	if err != nil {
		return protocol.CommandTarget{}, err
	}
	pty, err := either("ptyId", t.PTYID, t.PTYID2)
	return protocol.CommandTarget{SandboxID: sandbox, SessionID: session, PTYID: pty}, err
}

// either returns the one id that was given under its two names.
func either[T ~string](field string, camel, snake T) (T, error) {
	id := camel
	if id == "" {
		id = snake
	}
	switch {
	case snake != "" && snake != id:
		return "", protocol.Errorf(protocol.KindInvalid, "target.%s is given twice", field)
	case id != "" && !protocol.ValidID(id):
		return "", protocol.Errorf(protocol.KindInvalid, "target.%s is not an id", field)
	}
	return id, nil
}

// An operation is what a command is to do, with nothing in it that we don't
// know.
type operation struct {
	Kind   string
	Op     json.RawMessage // as it is signed
	Target protocol.CommandTarget
	TTLMs  int64
	Needs  []protocol.Capability // all of them
}

type opCreate struct {
	Kind string `json:"kind"`
	protocol.PTYCreate
}

type opSignal struct {
	Kind string `json:"kind"`
	protocol.PTYSignal
}

type opPlain struct {
	Kind string `json:"kind"`
}

// parseOperation checks what user wants done. An operation that this version
// doesn't know is KindUnsupported, everything else that is wrong KindInvalid,
// and naming another creator than oneself KindForbidden.
func parseOperation(raw json.RawMessage, t target, ttlMs *int64, user protocol.UserID) (operation, error) {
	var plain opPlain
	if err := protocol.UnmarshalObject(raw, &plain); err != nil {
		return operation{}, protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	op := operation{Kind: plain.Kind, TTLMs: protocol.DefaultCommandTTL.Milliseconds()}
	if plain.Kind == "" {
		return op, protocol.Errorf(protocol.KindInvalid, "op.kind is missing")
	}
	if _, known := protocol.OperationCapability[op.Kind]; !known {
		return op, protocol.Errorf(protocol.KindUnsupported, "unknown operation %q", op.Kind)
	}
	if ttlMs != nil {
		op.TTLMs = *ttlMs
	}
	if op.TTLMs <= 0 || op.TTLMs > protocol.MaxCommandTTL.Milliseconds() {
		return op, protocol.Errorf(protocol.KindInvalid, "ttlMs must be from 1 to %d", protocol.MaxCommandTTL.Milliseconds())
	}
	var err error
	if op.Target, err = t.resolve(); err != nil {
		return op, err
	}
	if err := checkTarget(op.Kind, op.Target); err != nil {
		return op, err
	}
	op.Needs = []protocol.Capability{protocol.OperationCapability[op.Kind]}
	op.Op, err = canonicalOp(op.Kind, raw, user)
	if err == nil && records(op) {
		op.Needs = append(op.Needs, protocol.CapRecord)
	}
	return op, err
}

// records reports whether op makes a terminal that is recorded, which takes
// more than making one.
func records(op operation) bool {
	var create opCreate
	return op.Kind == protocol.OpPTYCreate && json.Unmarshal(op.Op, &create) == nil && create.Record
}

// checkTarget reports an id that the operation needs and lacks, or has and
// must not.
func checkTarget(kind string, t protocol.CommandTarget) error {
	if kind == protocol.OpSessionCreate {
		if t.SandboxID == "" || t.SessionID != "" || t.PTYID != "" {
			return protocol.Errorf(protocol.KindInvalid, "%s wants target.sandboxId alone: the control plane makes session ids", kind)
		}
		return nil
	}
	needsPTY := false
	switch kind {
	case protocol.OpPTYClose, protocol.OpPTYSignal, protocol.OpRecordStart, protocol.OpRecordStop:
		needsPTY = true
	}
	switch {
	case t.SessionID == "":
		return protocol.Errorf(protocol.KindInvalid, "%s wants target.sessionId", kind)
	case needsPTY && t.PTYID == "":
		return protocol.Errorf(protocol.KindInvalid, "%s wants target.ptyId", kind)
	case kind == protocol.OpSessionDelete && t.PTYID != "":
		return protocol.Errorf(protocol.KindInvalid, "%s takes no target.ptyId", kind)
	}
	return nil
}

// canonicalOp decodes the op strictly and encodes it anew, so that what is
// signed is exactly what was checked.
func canonicalOp(kind string, raw json.RawMessage, user protocol.UserID) (json.RawMessage, error) {
	var err error
	switch kind {
	case protocol.OpPTYCreate:
		var op opCreate
		if err = strictOp(raw, &op); err != nil {
			return nil, err
		}
		if op.CreatorID != "" && op.CreatorID != user {
			return nil, protocol.Errorf(protocol.KindForbidden, "op.creatorId can only be yourself")
		}
		if op.Cols < 0 || op.Rows < 0 || op.Cols > maxUint16 || op.Rows > maxUint16 {
			return nil, protocol.Errorf(protocol.KindInvalid, "op.cols and op.rows must be from 0 (default) to %d", maxUint16)
		}
		op.CreatorID = user
		return json.Marshal(op)
	case protocol.OpPTYSignal:
		var op opSignal
		if err = strictOp(raw, &op); err != nil {
			return nil, err
		}
		if op.Signal == "" {
			return nil, protocol.Errorf(protocol.KindInvalid, "op.signal is missing")
		}
		return json.Marshal(op)
	}
	var op opPlain
	if err = strictOp(raw, &op); err != nil {
		return nil, err
	}
	return json.Marshal(op)
}

const maxUint16 = 1<<16 - 1

func strictOp(raw json.RawMessage, v any) error {
	if err := protocol.UnmarshalStrict(raw, v); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "op: %v", err)
	}
	return nil
}
