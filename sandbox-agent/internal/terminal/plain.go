package terminal

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/shell"
)

// maxScrollback bounds what [Host.Scrollback] returns.
const maxScrollback = 16 << 10

// Screen returns what the terminal id of session shows, with the newest lines
// rows above its screen, at most protocol.MaxKeyframeHistory, as plain text
// without secrets, and how the terminal stands. Lines end with a line feed and
// are whole however the screen wraps them; what is empty at their end, and at the
// end of all, is left out. It fails with KindNotFound when there is no such
// terminal.
func (h *Host) Screen(session protocol.SessionID, id protocol.PTYID, lines int) (string, protocol.PTYInfo, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return "", protocol.PTYInfo{}, err
	}
	text := t.view.plain(min(lines, protocol.MaxKeyframeHistory))
	return string(text), t.Info(), nil
}

// Scrollback returns the last 16 KiB of what [Host.Screen] returns with as many
// lines as there are, from the beginning of a line if there is one.
func (h *Host) Scrollback(session protocol.SessionID, id protocol.PTYID) ([]byte, error) {
	t, err := h.Get(session, id)
	if err != nil {
		return nil, err
	}
	return shell.LastLines(t.view.plain(protocol.MaxKeyframeHistory), maxScrollback), nil
}
