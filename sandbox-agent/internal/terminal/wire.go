package terminal

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/protocol"
)

// credentialsFile is where in our folder of a home a terminal's credentials are,
// for programs whose environment is of an earlier life of the agent.
const credentialsFile = "mcp.json"

// credentialVariables returns c as a terminal's programs find it in their
// environment, beside the ids that are there anyway, and under the names of seed
// 001.
func credentialVariables(c protocol.MCPCredentials) []string {
	return []string{
		"FAIRLEAD_MCP_URL=" + c.URL, "FAIRLEAD_MCP_SECRET=" + c.Secret,
		"ORCABOT_SESSION_ID=" + string(c.SessionID), "ORCABOT_PTY_ID=" + string(c.PTYID),
		"ORCABOT_MCP_URL=" + c.URL, "ORCABOT_MCP_SECRET=" + c.Secret,
	}
}

// wireNew writes into the home of a new terminal what its programs need to find
// the agent's tools. What keeps them from it is logged and returned, for people
// to see.
func (h *Host) wireNew(session protocol.SessionID, id protocol.PTYID, a account) (notice string) {
	err := h.writeCredentials(session, id, a)
	if err == nil {
		err = h.wire(session, id, a, "")
	}
	if err == nil {
		return ""
	}
	h.log.Warn("a terminal's coding agents are without tools", "pty", id, "error", err)
	return fmt.Sprintf("fairlead: coding agents started here are without fairlead's tools: %v\r\n", err)
}

func (h *Host) writeCredentials(session protocol.SessionID, id protocol.PTYID, a account) error {
	if h.config.Credentials == nil {
		return nil
	}
	content, err := json.Marshal(h.config.Credentials(session, id))
	if err != nil {
		return err
	}
	return writePrivate(a, credentialsFile, append(content, '\n'))
}

// wireAgent is wire for the known coding agent cli, "" for any other. An error is
// of KindInvalid: a person has to look after the file that it names.
func (h *Host) wireAgent(session protocol.SessionID, id protocol.PTYID, a account, cli string) error {
	if cli == "" {
		return nil
	}
	if err := h.wire(session, id, a, cli); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "%s can't be given the sandbox's tools: %v", cli, err)
	}
	return nil
}

func (h *Host) wire(session protocol.SessionID, id protocol.PTYID, a account, agent string) error {
	if h.config.Wire == nil {
		return nil
	}
	home, err := os.OpenRoot(a.home)
	if err != nil {
		return fmt.Errorf("home: %w", err)
	}
	defer home.Close()
	return h.config.Wire(home, a.uid, a.gid, session, id, agent)
}

// say shows text as if the program in front had printed it. It is called with mu
// held.
func (t *Terminal) say(text string) {
	if text == "" {
		return
	}
	out, _ := t.grid().Write(nil, nil, []byte(text))
	t.append(t.masked(t.stage.front, out, false))
}
