package terminal

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
)

// furnishNew writes into the home of a new terminal what its programs need to
// find the agent's tools. What keeps them from it is logged and returned, for
// people to see.
func (h *Host) furnishNew(start *feature.Start, a account.Account) (notice string) {
	err := launch.WriteCredentials(start.Credentials, a)
	if err == nil {
		err = h.furnish(start.Terminal, a, "")
	}
	if err == nil {
		return ""
	}
	h.log.Warn("a terminal's coding agents are without tools", "pty", start.PTY, "error", err)
	return fmt.Sprintf("fairlead: coding agents started here are without fairlead's tools: %v\r\n", err)
}

// furnishAgent is furnish for the known coding agent cli, "" for any other. An
// error is of KindInvalid: a person has to look after the file that it names.
func (h *Host) furnishAgent(session protocol.SessionID, id protocol.PTYID, a account.Account, cli string) error {
	if cli == "" {
		return nil
	}
	if err := h.furnish(feature.Terminal{Session: session, PTY: id, UID: a.UID}, a, cli); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "%s can't be given the sandbox's tools: %v", cli, err)
	}
	return nil
}

func (h *Host) furnish(of feature.Terminal, a account.Account, agent string) error {
	if h.config.Features == nil {
		return nil
	}
	return launch.Furnish(h.config.Features, feature.Home{Terminal: of, Agent: agent}, a)
}

// say shows text as if the program had printed it. It is called before the
// terminal is read.
func (t *Terminal) say(text string) {
	if text == "" {
		return
	}
	t.view.mu.Lock()
	defer t.view.mu.Unlock()
	t.view.display.Write(nil, []byte(text), false)
	t.beginAnewIfDue(time.Now())
	t.arbiter.Show(t.shown(), true)
}
