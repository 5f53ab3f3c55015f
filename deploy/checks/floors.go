// Package checks keeps the structure of this repository: who may import whom,
// and what no file may contain. Its tests apply the checks to the whole tree.
package checks

import (
	"path"
	"strings"
)

// Module is the import path of the repository's root.
const Module = "github.com/fairlead/fairlead"

// A Floor is the height of a package. Imports point downwards.
type Floor int

const (
	F0 Floor = iota // wire and shared pure state
	F1              // transport and pure cores
	F2              // owners of state and goroutines
	F3              // edges
	F4              // composition
)

// Floors is the one table of all packages, by directory; "/..." stands for
// everything below as well. A new package belongs here, but for a feature of the
// sandbox: a folder of Features that no row names is on F2.
var Floors = []struct {
	Floor Floor
	Dirs  []string
}{
	{F0, []string{
		"protocol", "protocol/jws", "protocol/bytelog", "protocol/eventlog", "protocol/lease", "protocol/pace", "protocol/audit",
		"protocol/envseal", "protocol/op", "protocol/op/optest", "protocol/chatsocket", "protocol/wsframe", "protocol/pluginsocket", "protocol/taburl", "protocol/seal",
	}},
	{F1, []string{
		"tunnel", "tunnel/internal/...", "tunnel/quiet", "tunnel/tunneltest", "tunnel/tunneltest/impair",
		"relay/internal/turn", "relay/internal/replay", "relay/internal/roster", "relay/internal/presence",
		"sandbox-agent/internal/redact", "sandbox-agent/internal/screen/...",
		"sandbox-agent/internal/hostname", "sandbox-agent/internal/toolbox/...", "sandbox-agent/internal/reply", "sandbox-agent/internal/feature", "sandbox-agent/internal/controlplane", "sandbox-agent/internal/peer",
		"sandbox-agent/internal/history/rows", "sandbox-agent/internal/route", "sandbox-agent/internal/mask", "sandbox-agent/internal/provider",
		"sandbox-agent/internal/grantlist", "sandbox-agent/internal/linkfinder", "sandbox-agent/internal/chat/life", "sandbox-agent/internal/chat/control", "sandbox-agent/internal/chat/masking",
		"sandbox-agent/internal/sidebar/model", "sandbox-agent/internal/sidebar/lineup", "sandbox-agent/internal/sidebar/ring", "sandbox-agent/internal/sidebar/push", "sandbox-agent/internal/browser/roster", "sandbox-agent/internal/browser/pipe", "sandbox-agent/internal/browser/jar", "sandbox-agent/internal/browser/installed",
		"deploy/program", "deploy/program/bundle", "deploy/program/certfile", "deploy/program/chromium", "deploy/program/cookieform", "deploy/program/hops", "deploy/program/instrument", "deploy/program/intake", "deploy/program/lifetime", "deploy/program/pause", "deploy/program/seldom", "deploy/program/sitepolicy", "deploy/program/standin", "deploy/program/telemetry",
		"deploy/source/internal/browsers",
		"sandbox-agent/internal/lifespan", "sandbox-agent/internal/rendezvous",
		"loadtest/internal/pattern", "loadtest/internal/measure", "loadtest/internal/openloop",
		"deploy/controlplane/internal/store/...", "deploy/controlplane/internal/clock", "deploy/controlplane/internal/private", "deploy/controlplane/internal/flights",
		"deploy/controlplane/internal/oauth", "deploy/controlplane/internal/oidc/...",
		"deploy/controlplane/internal/policy", "deploy/controlplane/internal/provider", "deploy/controlplane/internal/vault",
	}},
	{F2, []string{
		"tunnel/terminalstream",
		"relay/internal/hub", "relay/internal/chathub", "relay/internal/chatring", "relay/internal/agentstream", "relay/internal/feed", "relay/internal/batchsend", "relay/internal/input", "relay/internal/fleet", "relay/internal/access",
		"relay/internal/dispatch", "relay/internal/connectproxy", "relay/internal/relaytest",
		"relay/internal/pagestream", "relay/internal/rejects", "relay/internal/reverseproxy",
		"sandbox-agent/internal/terminal", "sandbox-agent/internal/process", "sandbox-agent/internal/process/helper", "sandbox-agent/internal/ledger",
		"sandbox-agent/internal/spill", "sandbox-agent/internal/journal", "sandbox-agent/internal/transcript", "sandbox-agent/internal/display", "sandbox-agent/internal/arbiter", "sandbox-agent/internal/shell", "sandbox-agent/internal/launch", "sandbox-agent/internal/pty", "sandbox-agent/internal/account",
		"sandbox-agent/internal/approval", "sandbox-agent/internal/broker", "sandbox-agent/internal/egress",
		"sandbox-agent/internal/files/workspace", "sandbox-agent/internal/hooks", "sandbox-agent/internal/panel",
		"sandbox-agent/internal/browser", "sandbox-agent/internal/browser/jarfile", "sandbox-agent/internal/executor",
		"sandbox-agent/internal/recording", "sandbox-agent/internal/audit", "sandbox-agent/internal/passwd",
		"sandbox-agent/internal/environment", "sandbox-agent/internal/outbound",
		"sandbox-agent/internal/integration", "sandbox-agent/internal/authority", "sandbox-agent/internal/uplink",
		"sandbox-agent/internal/agenttest", "sandbox-agent/internal/chat/rules", "sandbox-agent/internal/chat/opened", "sandbox-agent/internal/sidebar/activity", "sandbox-agent/internal/sidebar/places",
		"sandbox-agent/internal/history/lineindex", "sandbox-agent/internal/history/homefs", "sandbox-agent/internal/history/dbread",
		"deploy/source/internal/config", "deploy/source/internal/cookiefile", "deploy/source/internal/keyring", "deploy/source/internal/sending",
		"deploy/client", "deploy/extension", "deploy/extension/build", "loadtest/internal/eventloop", "loadtest/internal/generator", "loadtest/internal/enrol",
		"loadtest/internal/source", "loadtest/internal/baseline", "loadtest/internal/peer", "loadtest/internal/stack", "loadtest/internal/children",
		"deploy/controlplane/internal/keyring", "deploy/controlplane/internal/webhook", "deploy/controlplane/internal/metrics",
		"deploy/controlplane/internal/usage", "deploy/controlplane/internal/relays", "deploy/controlplane/internal/web",
		"deploy/controlplane/internal/statedir",
	}},
	{F3, []string{
		"relay/internal/gateway", "relay/internal/webapp", "relay/internal/chatapi", "relay/internal/shellapi", "relay/internal/panelapi", "relay/internal/controlapi", "relay/internal/sandboxapi", "relay/internal/sidebarapi", "relay/internal/syncdoor",
		"relay/internal/console/...", "relay/internal/admin", "relay/internal/openapi", "relay/internal/preview", "relay/internal/pluginapi",
		"sandbox-agent/internal/mcp/...", "sandbox-agent/internal/bridge", "sandbox-agent/internal/tools", "sandbox-agent/internal/files", "sandbox-agent/internal/link",
		"sandbox-agent/internal/loopback", "sandbox-agent/internal/preview", "sandbox-agent/internal/metrics",
		"deploy/controlplane/internal/access", "deploy/controlplane/internal/device",
		"loadtest/internal/viewers", "loadtest/internal/calls", "loadtest/internal/bulk", "loadtest/internal/usage", "loadtest/internal/talk", "loadtest/internal/owntabs", "loadtest/internal/typist", "loadtest/internal/pusher", "loadtest/internal/growth", "loadtest/internal/legs", "loadtest/internal/skew", "loadtest/internal/printer", "loadtest/internal/simagent", "loadtest/internal/agents", "loadtest/internal/report", "loadtest/internal/impair",
	}},
	{F4, []string{
		"relay", "relay/cmd/...", "sandbox-agent", "sandbox-agent/cmd/...",
		"loadtest", "loadtest/cmd/...", "loadtest/internal/scenario", "loadtest/internal/stage",
		"deploy/controlplane", "deploy/controlplane/cmd/...", "deploy/controlplane/internal/boards", "deploy/controlplane/internal/people", "deploy/controlplane/internal/authority", "deploy/controlplane/internal/grants",
		"deploy/controlplane/internal/contents/...", "deploy/controlplane/internal/integrations",
		"deploy/controlplane/internal/commands/...", "deploy/controlplane/internal/notices",
		"deploy/controlplane/internal/fleet", "deploy/controlplane/internal/tabs",
		"deploy/source", "deploy/source/cmd/...", "deploy/devstack/...", "deploy/e2e/...", "deploy/checks/...", "deploy/grafana/...",
	}},
}

// Sideways are the imports on one floor that are meant.
var Sideways = []struct{ From, To, Why string }{
	{"protocol/op", "protocol/taburl", "a side panel's tab is told without secrets"},
	{"protocol/op", "protocol/seal", "codes, secrets and policies are checked before they are signed"},
	{"protocol/jws", "protocol/op", "a command carries an operation"},
	{"protocol/wsframe", "protocol/pluginsocket", "how long a piece may be is agreed on"},
	{"tunnel/internal/quiclink", "tunnel/internal/carrier", "the interface it implements"},
	{"tunnel/internal/wsslink", "tunnel/internal/carrier", "the interface it implements"},
	{"tunnel/internal/quiclink", "tunnel/quiet", "its sockets' system calls"},
	{"tunnel/internal/wsslink", "tunnel/quiet", "whoever moves a file has other sockets looked at"},
	{"tunnel/internal/quiclink", "deploy/program/hops", "packets are what a key passes"},
	{"tunnel/tunneltest", "tunnel/internal/carrier", "the interface it implements"},
	{"deploy/controlplane/cmd/controlplane", "deploy/controlplane/internal/integrations", "its command line rotates the vault's keys"},
	{"deploy/controlplane/cmd/controlplane", "deploy/controlplane/internal/fleet", "its command line invites and enrols sandboxes"},
	{"deploy/controlplane/internal/fleet", "deploy/controlplane/internal/boards", "a sandbox is invited with a dashboard"},
	{"deploy/program/standin", "deploy/program/pause", "a script's words take their time"},
	{"deploy/controlplane/internal/integrations", "deploy/controlplane/internal/contents/tools", "the gateway leads to them, too"},
	{"deploy/controlplane/internal/tabs", "deploy/controlplane/internal/commands", "agents' commands are the sharer's"},
	{"deploy/controlplane/internal/tabs", "deploy/controlplane/internal/commands/signing", "a command has a target"},
	{"relay/internal/dispatch", "relay/internal/pagestream", "some commands go to pages"},
	{"relay/internal/panelapi", "relay/internal/gateway", "its sockets are upgraded there"},
	{"relay/internal/chatapi", "relay/internal/gateway", "its sockets are upgraded there"},
	{"relay/internal/chatapi", "relay/internal/webapp", "it says who its requests are from"},
	{"relay/internal/webapp", "relay/internal/gateway", "it has sockets upgraded"},
	{"relay/internal/pluginapi", "relay/internal/gateway", "its sockets are upgraded there"},
	{"relay/internal/pluginapi", "relay/internal/webapp", "it says who its sockets are from"},
	{"relay/internal/shellapi", "relay/internal/webapp", "it says who opens a socket"},
	{"relay/internal/shellapi", "relay/internal/gateway", "its sockets are upgraded there"},
	{"relay/internal/sidebarapi", "relay/internal/gateway", "it counts a person's streams as sockets are counted"},
	{"relay/internal/hub", "relay/internal/batchsend", "it sends to many sockets at once"},
	{"relay/internal/hub", "relay/internal/feed", "it shares what a feed keeps"},
	{"relay/internal/chathub", "relay/internal/agentstream", "it has a stream per conversation"},
	{"relay/internal/chathub", "relay/internal/chatring", "it shares what a ring keeps"},
	{"relay/internal/hub", "relay/internal/agentstream", "it has a stream per terminal"},
	{"relay/internal/hub", "relay/internal/input", "it says who may type, and a queue carries it"},
	{"sandbox-agent/internal/chat/control", "sandbox-agent/internal/grantlist", "it checks the grants under which streams are used"},
	{"sandbox-agent/internal/chat/masking", "sandbox-agent/internal/redact", "it finds what is to be masked"},
	{"sandbox-agent/internal/chat", "sandbox-agent/internal/chatlog", "each conversation has a log"},
	{"sandbox-agent/internal/chat", "sandbox-agent/internal/codingagent", "it starts coding agents' programs"},
	{"sandbox-agent/internal/chat/opened", "sandbox-agent/internal/codingagent", "a program says in which terminal it runs"},
	{"sandbox-agent/internal/chat/opened", "sandbox-agent/internal/process", "it knows coding agents by their programs"},
	{"sandbox-agent/internal/chat", "sandbox-agent/internal/process", "a terminal may have a provider's session open"},
	{"sandbox-agent/internal/chat", "sandbox-agent/internal/approval", "coding agents ask whether tools may be used"},
	{"sandbox-agent/internal/sidebar", "sandbox-agent/internal/chat", "each tab has a conversation"},
	{"sandbox-agent/internal/mask", "sandbox-agent/internal/redact", "it finds what is to be masked"},
	{"sandbox-agent/internal/feature", "sandbox-agent/internal/toolbox", "a feature may bring tools"},
	{"sandbox-agent/internal/route", "sandbox-agent/internal/reply", "it answers what the grant doesn't allow"},
	{"sandbox-agent/internal/screen/keyframe", "sandbox-agent/internal/screen/grid", "it rebuilds what a grid shows"},
	{"sandbox-agent/internal/executor", "sandbox-agent/internal/ledger", "a command's id is stored before it runs"},
	{"sandbox-agent/internal/executor", "sandbox-agent/internal/audit", "an executed command is recorded"},
	{"sandbox-agent/internal/broker", "sandbox-agent/internal/outbound", "it dials nowhere else"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/process", "what it hosts is signalled with all it started"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/passwd", "its configuration says where users have names"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/account", "each terminal's programs run as somebody"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/pty", "it starts programs on PTYs"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/transcript", "it keeps what programs print"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/display", "what programs print goes through it"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/arbiter", "it says who may type"},
	{"sandbox-agent/internal/arbiter", "sandbox-agent/internal/account", "the clock of files says when input came"},
	{"sandbox-agent/internal/arbiter", "sandbox-agent/internal/display", "keyframes go between the output"},
	{"sandbox-agent/internal/arbiter", "sandbox-agent/internal/process", "a coding agent is stopped with all it started"},
	{"sandbox-agent/internal/arbiter", "sandbox-agent/internal/pty", "it writes input to PTYs"},
	{"sandbox-agent/internal/arbiter", "sandbox-agent/internal/transcript", "streams follow the log"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/shell", "it runs commands at prompts"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/launch", "it starts what that says"},
	{"sandbox-agent/internal/launch", "sandbox-agent/internal/account", "a program runs as somebody"},
	{"sandbox-agent/internal/codingagent", "sandbox-agent/internal/account", "all programs of a session run as one account"},
	{"sandbox-agent/internal/codingagent", "sandbox-agent/internal/launch", "they find what those of terminals do"},
	{"sandbox-agent/internal/codingagent", "sandbox-agent/internal/process", "a program ends with all it started"},
	{"sandbox-agent/internal/launch", "sandbox-agent/internal/process", "it knows coding agents"},
	{"sandbox-agent/internal/launch", "sandbox-agent/internal/pty", "what it says is for a PTY"},
	{"sandbox-agent/internal/shell", "sandbox-agent/internal/account", "a shell tells of its prompt in its user's home"},
	{"sandbox-agent/internal/shell", "sandbox-agent/internal/arbiter", "what was typed decides whether a command may be"},
	{"sandbox-agent/internal/shell", "sandbox-agent/internal/pty", "a PTY tells whether a line is edited"},
	{"sandbox-agent/internal/shell", "sandbox-agent/internal/transcript", "a command's output is in the log"},
	{"sandbox-agent/internal/display", "sandbox-agent/internal/transcript", "it alone writes output to the log"},
	{"sandbox-agent/internal/pty", "sandbox-agent/internal/account", "as whom a program runs"},
	{"sandbox-agent/internal/pty", "sandbox-agent/internal/process", "a program is signalled with all it started"},
	{"sandbox-agent/internal/account", "sandbox-agent/internal/passwd", "a terminal's user has a name while it runs"},
	{"sandbox-agent/internal/account", "sandbox-agent/internal/process", "nothing may run under a uid that is handed out"},
	{"sandbox-agent/internal/transcript", "sandbox-agent/internal/spill", "a log outgrows its window in memory"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/recording", "a running recording sets the pace"},
	{"sandbox-agent/internal/approval", "sandbox-agent/internal/journal", "its events are on disk"},
	{"sandbox-agent/internal/history/rows", "sandbox-agent/internal/provider", "rows and live events have the same ids"},
	{"sandbox-agent/internal/history/dbread", "sandbox-agent/internal/process/helper", "it reads in a process of the home's user"},
	{"sandbox-agent/internal/browser/jarfile", "sandbox-agent/internal/process/helper", "it writes in a process of Chromium's user"},
	{"sandbox-agent/internal/history", "sandbox-agent/internal/chat", "it knows which conversation is which session of a provider"},
	{"sandbox-agent/internal/history", "sandbox-agent/internal/chatlog", "it says who has sent what a transcript has"},
	{"loadtest/internal/agents", "loadtest/internal/simagent", "it runs a fleet of them as a generator"},
	{"loadtest/internal/bulk", "loadtest/internal/printer", "it floods a terminal with what the source prints"},
	{"loadtest/internal/eventloop", "deploy/client", "the transport it implements"},
	{"loadtest/internal/scenario", "loadtest/internal/stage", "scenarios stand on it"},
	{"loadtest/internal/peer", "deploy/client", "it has peers serve its viewers"},
	{"sandbox-agent/internal/terminal", "sandbox-agent/internal/spill", "a log outgrows its window in memory"},
}

// Features is the folder of the sandbox's features, one folder each.
const Features = "sandbox-agent/internal"

// FloorOf returns the floor of the package in dir.
func FloorOf(dir string) (Floor, bool) {
	for _, row := range Floors {
		for _, pattern := range row.Dirs {
			if matches(pattern, dir) {
				return row.Floor, true
			}
		}
	}
	return F2, path.Dir(dir) == Features
}

// matches reports whether pattern, a directory or "directory/...", covers dir.
func matches(pattern, dir string) bool {
	if top, all := strings.CutSuffix(pattern, "/..."); all {
		return dir == top || strings.HasPrefix(dir, top+"/")
	}
	return dir == pattern
}

// A Restriction says which of our packages may import what, beside the floors.
type Restriction struct {
	Import  string   // an import path; everything below it is meant, too
	Only    []string // the directories that may import it, as in Floors; nil: any but those in Never
	Never   []string // the directories that may not
	InTests bool     // holds for test files and deploy/e2e as well
	Why     string
}

// Restrictions is the table of who alone may use what.
var Restrictions = []Restriction{
	{Import: "go.opentelemetry.io", Only: []string{"deploy/program/telemetry"}, Why: "one package makes spans, where it is built to"},
	{Import: "github.com/go-jose", Only: []string{"protocol/jws"}, Why: "one package keeps the closed profile"},
	{Import: "github.com/creack/pty", Only: []string{"sandbox-agent/internal/pty", "loadtest/internal/baseline"}, Why: "one package starts programs on PTYs, beside the bare one that it is compared with"},
	{Import: Module + "/relay", Never: []string{"sandbox-agent/..."}, InTests: true, Why: "they meet on the wire"},
	{Import: Module + "/sandbox-agent", Never: []string{"relay/..."}, InTests: true, Why: "they meet on the wire"},
	{Import: Module + "/relay", Never: []string{"loadtest/..."}, InTests: true, Why: "it uses what a user has"},
	{Import: Module + "/sandbox-agent", Never: []string{"loadtest/..."}, InTests: true, Why: "it uses what a user has"},
}

// RootEntries are what may stand at the root beside dotfiles.
var RootEntries = []string{
	"relay", "sandbox-agent", "tunnel", "protocol", "deploy", "loadtest",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE",
}

// kin reports whether one of two directories contains the other.
func kin(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

// dirOf returns the directory of one of our import paths.
func dirOf(importPath string) (string, bool) {
	if importPath == Module {
		return ".", true
	}
	dir, ours := strings.CutPrefix(importPath, Module+"/")
	return path.Clean(dir), ours
}
