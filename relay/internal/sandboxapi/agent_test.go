package sandboxapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

const agentPath = "/sessions/ses_1/ptys/pty_1/agent"

func mayAgent(g *jws.Grant) {
	g.Caps = []protocol.Capability{protocol.CapView, protocol.CapAgent}
}

// reports is a sandbox whose agent is in state now.
func reports(state protocol.AgentState) func(*jws.Command) protocol.Result {
	return func(c *jws.Command) protocol.Result {
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: c.Target.PTYID, AgentState: state})
	}
}

// lastOp returns the op that was signed last, as JSON.
func (w *world) lastOp() string {
	op, err := json.Marshal(w.signed[len(w.signed)-1].Op)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(op)
}

func TestAgents(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(mayAgent)
	_, both := w.authority.Grant(func(g *jws.Grant) { mayAgent(g); g.Caps = append(g.Caps, protocol.CapShell) })
	for _, c := range []struct {
		path, token, body string
		state             protocol.AgentState
		op                string
	}{
		{agentPath, token, `{"name":"claude"}`, protocol.AgentRunning, `{"kind":"agent.start","name":"claude"}`},
		{agentPath, token, "", protocol.AgentRunning, `{"kind":"agent.start"}`},
		{agentPath, both, `{"command":"sleep","args":["9"]}`, protocol.AgentRunning, `{"args":["9"],"command":"sleep","kind":"agent.start"}`},
		{agentPath + "/pause", token, "", protocol.AgentPaused, `{"kind":"agent.pause"}`},
		{agentPath + "/resume", token, "", protocol.AgentRunning, `{"kind":"agent.resume"}`},
		{agentPath + "/stop", token, "", protocol.AgentStopped, `{"kind":"agent.stop"}`},
	} {
		w.execute = reports(c.state)
		answer := w.do(http.MethodPost, c.path, c.token, c.body, "Idempotency-Key", "key")
		expect(t, answer, http.StatusOK, `{"state":"`+string(c.state)+`"}`)
		signed := w.signed[len(w.signed)-1]
		if w.lastOp() != c.op || signed.IdempotencyKey != "key" ||
			signed.Target != (protocol.CommandTarget{SandboxID: relaytest.Sandbox, SessionID: "ses_1", PTYID: "pty_1"}) {
			t.Errorf("%s: signed %s for %+v", c.path, w.lastOp(), signed.Target)
		}
	}
}

func TestAgentsThatMayNot(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(mayAgent)
	_, shell := w.authority.Grant(nil)
	for name, c := range map[string]struct {
		path, token, body string
		want              int
	}{
		"a command without shell": {agentPath, token, `{"command":"sh"}`, 403},
		"arguments without shell": {agentPath, token, `{"name":"claude","args":["--yes"]}`, 403},
		"shell without agent":     {agentPath, shell, `{"name":"claude"}`, 403},
		"pause without agent":     {agentPath + "/pause", shell, "", 403},
		"stop without agent":      {agentPath + "/stop", shell, "", 403},
		"unknown member":          {agentPath, token, `{"shell":"sh"}`, 400},
		"no credential":           {agentPath + "/stop", "", "", 401},
		"signal without shell":    {"/sessions/ses_1/ptys/pty_1/signal", token, `{"signal":"INT"}`, 403},
		"no signal":               {"/sessions/ses_1/ptys/pty_1/signal", shell, `{}`, 400},
		"no body":                 {"/sessions/ses_1/ptys/pty_1/signal", shell, "", 400},
	} {
		t.Run(name, func(t *testing.T) { expect(t, w.do(http.MethodPost, c.path, c.token, c.body), c.want, `"error"`) })
	}
	if len(w.signed) != 0 {
		t.Errorf("asked the control plane for %+v", w.signed)
	}
	w.execute = fails(protocol.KindConflict, `{"status":"error","error":{"message":"an agent is there already","name":"RequestError"}}`)
	expect(t, w.do(http.MethodPost, agentPath, token, ""), http.StatusConflict, "there already")
}

func TestSignal(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys/pty_1/signal", token, `{"signal":"INT"}`), http.StatusNoContent)
	if op := w.lastOp(); !strings.Contains(op, `"kind":"pty.signal"`) || !strings.Contains(op, `"signal":"INT"`) {
		t.Errorf("signed %s", op)
	}
}
