package terminal

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// maxTypedBytes bounds what is typed at once for a tool.
const maxTypedBytes = 64 << 10

// TypeFor types text into the terminal id of session and returns when the
// program in front was given all of it. An Enter that it ends with comes a
// moment later, as a person's would. Control is taken if nobody has it, and
// given back then; a person types also under control that they have already.
//
// It fails with KindConflict, which names who has control or the coding agent
// that works, also when control goes to somebody else in the middle; with
// KindForbidden when a person's grant doesn't allow to control the terminal,
// for a program whose terminal it is not open to, see [Host.Share], or no longer,
// and for one that would type into its own; with KindInvalid and
// KindTooLarge for a text of no or over 64 KiB; with KindEnded, and with
// KindUnavailable when ctx ends, or the program doesn't read for 10 seconds,
// before all was typed: then some of it may have been.
func (h *Host) TypeFor(ctx context.Context, session protocol.SessionID, id protocol.PTYID, by arbiter.Typist, text []byte) error {
	switch {
	case len(text) == 0:
		return protocol.Errorf(protocol.KindInvalid, "nothing to type")
	case len(text) > maxTypedBytes:
		return protocol.Errorf(protocol.KindTooLarge, "over %d bytes to type", maxTypedBytes)
	}
	t, err := h.typable(session, id, by)
	if err != nil {
		return err
	}
	return t.arbiter.TypeFor(ctx, by, text)
}

// typable returns a terminal that by may type into as far as that doesn't depend
// on who has control.
func (h *Host) typable(session protocol.SessionID, id protocol.PTYID, by arbiter.Typist) (*Terminal, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return nil, err
	}
	if by.Grant == nil && by.PTY == id {
		return nil, protocol.Errorf(protocol.KindForbidden, "a program can't type into its own terminal")
	}
	return t, nil
}
