package terminal

import (
	"github.com/fairlead/fairlead/protocol"
)

// Share opens the terminal id of session to programs of other terminals, instead
// of those that it was open to before. Everybody who watches it is told. Whoever
// types into it and no longer may is cut off: when Share returns, nothing more of
// that gets through. It fails with KindInvalid for a terminal that would be open
// to itself, with KindNotFound where there is none of either name, and with
// KindEnded for programs that have ended.
func (h *Host) Share(session protocol.SessionID, id protocol.PTYID, with protocol.Share) error {
	other := with.Terminal()
	switch {
	case !with.Valid():
		return protocol.Errorf(protocol.KindInvalid, "neither a terminal's id, nor %q or %q", protocol.ShareSession, protocol.ShareNone)
	case other == id:
		return protocol.Errorf(protocol.KindInvalid, "the terminal's own programs need no leave")
	}
	t, err := h.Get(session, id)
	if err != nil {
		return err
	}
	if other == "" {
		t.arbiter.Share(with)
		return nil
	}
	friend, err := h.Get(session, other)
	if err != nil {
		return err
	}
	t.arbiter.Share(with)
	// Asked last: if it ended before, closeTo may have come too early for us.
	if friend.hasEnded() {
		t.arbiter.Share(protocol.ShareNone)
		return protocol.Errorf(protocol.KindEnded, "nothing runs in terminal %s any more", other)
	}
	return nil
}

// OpenTo reports whether the programs of a terminal may read the terminal id of
// session, and type into it if that is another one.
func (h *Host) OpenTo(session protocol.SessionID, id, programs protocol.PTYID) bool {
	if id == programs {
		return true
	}
	t, err := h.Get(session, id)
	if err != nil {
		return false
	}
	return t.arbiter.OpenTo(programs)
}

// closeTo closes what is open to the programs of the terminal id of session alone:
// it has ended, and another terminal may get its name.
func (h *Host) closeTo(session protocol.SessionID, id protocol.PTYID) {
	for _, t := range h.all() {
		if t.session == session {
			t.arbiter.CloseTo(id)
		}
	}
}
