package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	agent "github.com/fairlead/fairlead/sandbox-agent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
)

// declare adds the agent's flags to c. The Config is complete once c runs.
func declare(c *program.Command) *agent.Config {
	cfg := &agent.Config{}
	c.String(&cfg.StateDir, "state-dir", "", "`directory` for the device key, the ledger and cached keys")
	c.String(&cfg.Enrolment, "enrolment", "", "`file` that the control plane wrote for this sandbox (default: enrolment.json in the state directory)")
	c.String(&cfg.Invitation, "invitation", "", "`file` with an invitation, exchanged for an enrolment where there is none yet")
	c.String(&cfg.Workspace, "workspace", "/workspace", "`directory` that terminals start in")
	c.String(&cfg.Homes, "homes", "/home/sandbox", "`directory` with a home for each terminal")
	c.Strings(&cfg.Relays, "relays", "`addresses` host:port of relays, tried in this order, which pins the sandbox to them (default: those of the newest enrolment, in an order of the sandbox's own)")
	c.String(&cfg.Carrier, "carrier", agent.CarrierAuto, "`way` to reach relays: auto, quic or websocket")
	c.String(&cfg.SpillDir, "spill-dir", "", "`directory` for terminals' output that their memory no longer holds (default: it is dropped)")
	c.Int(&cfg.SpillPerTerminal, "spill-per-terminal", agent.DefaultSpillPerTerminal, "`bytes` kept there of a terminal")
	c.Int(&cfg.SpillTotal, "spill-total", agent.DefaultSpillTotal, "`bytes` kept there of all terminals")
	c.Duration(&cfg.KeysMaxAge, "keys-max-age", agent.DefaultKeysMaxAge, "how long the control plane's keys are believed while it can't be reached, a `time`")
	c.String(&cfg.StatusFile, "status-file", "", "`file` that tells whether the agent is ready and what is wrong, written at each change")
	c.String(&cfg.BrokerListen, "broker-listen", agent.DefaultBrokerListen, "loopback `address` of the broker, which puts keys into requests")
	c.String(&cfg.EgressListen, "egress-listen", agent.DefaultEgressListen, "loopback `address` of the egress proxy")
	c.String(&cfg.MCPListen, "mcp-listen", agent.DefaultMCPListen, "loopback `address` of the tools for the terminals' coding agents, and of their hooks")
	c.Bool(&cfg.UserEntries, "user-entries", true, "as root, the users of terminals have entries in /etc/passwd while they run, without which ssh and others refuse to work")
	c.Bool(&cfg.SyncUnisolated, "sync-unisolated", false, "take people's cookies for the browser (sync.pair) even without root, where every program of a terminal can read them")
	c.Bool(&cfg.AllowPrivileges, "allow-privileges", false, "programs of terminals may gain privileges by what they run, as sudo needs; they can't otherwise")
	c.Strings(&cfg.ProgramPath, "program-path", "`folders` of programs, such as coding agents, that terminals and conversations find before all others")
	c.Bool(&cfg.Egress, "egress", false, "terminals go through the egress proxy unless their session says otherwise")
	c.Strings(&cfg.OutboundHosts, "outbound-hosts", "name=ip[:port] `addresses` of hosts that broker and egress proxy reach there, also in private networks")
	c.Int(&cfg.ChatRuns, "chat-runs", protocol.MaxChatRuns, "`number` of runs of coding agents in conversations at the same time")
	c.Duration(&cfg.ChatSilence, "chat-silence", agent.DefaultChatSilence, "how long such a run may print nothing before it is ended, a `time`")
	c.Duration(&cfg.ChatPatience, "chat-patience", agent.DefaultChatPatience, "how long a coding agent's question about a tool waits, a `time`; then the answer is no")
	c.Int(&cfg.ChatWarm, "chat-warm", agent.DefaultChatWarm, "`number` of coding agents' programs that wait for another message, less than 0 for none")
	c.Duration(&cfg.ChatWarmFor, "chat-warm-for", agent.DefaultChatWarmFor, "how long they do, a `time`")
	c.Int(&cfg.ChatWindow, "chat-window", contextWindow(os.Getenv), "`tokens` of the context of claude's models (default: CONTEXT_WINDOW in the environment, or what claude says)")
	c.Require("state-dir")
	return cfg
}

// contextWindow is what the environment says of the context of claude's models, by
// the name that it has in seed 002; 0: nothing.
func contextWindow(getenv func(string) string) int {
	tokens, err := strconv.Atoi(strings.TrimSpace(getenv("CONTEXT_WINDOW")))
	if err != nil {
		return 0
	}
	return max(tokens, 0)
}

// keygen declares the subcommand that makes the device key where there is none
// and prints its public half.
func keygen(c *program.Command) {
	var stateDir string
	c.String(&stateDir, "state-dir", "", "`directory` of the sandbox's state")
	c.Require("state-dir")
	c.Run(func(_ context.Context, env *program.Env) error {
		key, err := authority.DeviceKey(stateDir)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(env.Stdout, "%s\n", key.PublicJWK())
		return err
	})
}
