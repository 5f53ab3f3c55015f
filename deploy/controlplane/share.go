package controlplane

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

type opShare struct {
	Kind string `json:"kind"`
	protocol.TerminalShare
}

// checkShare wants a terminal, "session" or "none".
func checkShare(op *opShare, _ protocol.UserID) ([]protocol.Capability, error) {
	if !op.With.Valid() {
		return nil, protocol.Errorf(protocol.KindInvalid, "op.with must be the id of a terminal, %q or %q", protocol.ShareSession, protocol.ShareNone)
	}
	return nil, nil
}

// nameShared completes the target of terminal.share, whose terminal may be named
// by the op, by the target, or by both alike.
func nameShared(raw json.RawMessage, t *protocol.CommandTarget) error {
	var op opShare
	if err := protocol.UnmarshalStrict(raw, &op); err != nil {
		return opError(err)
	}
	switch {
	case op.PTY == "":
		return nil
	case !protocol.ValidID(op.PTY):
		return protocol.Errorf(protocol.KindInvalid, "op.pty is not an id")
	case t.PTYID == "":
		t.PTYID = op.PTY
	case t.PTYID != op.PTY:
		return protocol.Errorf(protocol.KindInvalid, "op.pty and target.ptyId name two terminals")
	}
	return nil
}
