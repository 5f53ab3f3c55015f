package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/broker"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jarfile"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/cookies"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/environment"
	"github.com/fairlead/fairlead/sandbox-agent/internal/executor"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/dbread"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hooks"
	"github.com/fairlead/fairlead/sandbox-agent/internal/integration"
	"github.com/fairlead/fairlead/sandbox-agent/internal/link"
	"github.com/fairlead/fairlead/sandbox-agent/internal/loopback"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mcp"
	"github.com/fairlead/fairlead/sandbox-agent/internal/metrics"
	"github.com/fairlead/fairlead/sandbox-agent/internal/outbound"
	"github.com/fairlead/fairlead/sandbox-agent/internal/panel"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/fairlead/fairlead/sandbox-agent/internal/plugin"
	"github.com/fairlead/fairlead/sandbox-agent/internal/preview"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
	"github.com/fairlead/fairlead/sandbox-agent/internal/tools"
)

// ReadDatabase is the subcommand of sandbox-agent that calls [dbread.Serve].
const ReadDatabase = "read-database"

// WriteCookies is the subcommand of sandbox-agent that calls [jarfile.Serve].
const WriteCookies = "write-cookies"

// noteTimeout bounds the recording of what an earlier process left undone.
const noteTimeout = 5 * time.Second

// A builder makes the features of a sandbox, in the order in which they need each
// other. Whatever it has made by the time that something fails is in the Set.
type builder struct {
	*base
	listeners  listeners
	ports      loopback.Ports
	program    string // the path of this program, for terminals
	host       *terminal.Host
	recordings *recording.Store

	// Made on the way.
	programs  programs
	approvals *approval.Log
	variables *environment.Store
	opened    opened
	history   *history.History
	browsers  watchedBrowser
	synced    *cookies.Sink
}

// build makes the features, and what serves them to relays.
func (b *builder) build() (*link.Link, *reporter, error) {
	if b.isolated() {
		if err := checkReach(b.cfg.Workspace, b.cfg.Homes); err != nil {
			return nil, nil, err
		}
	}
	b.programs = b.newPrograms()
	gate, err := b.network()
	if err != nil {
		return nil, nil, err
	}
	if err := b.agents(gate); err != nil {
		return nil, nil, err
	}
	if err := b.conversations(); err != nil {
		return nil, nil, err
	}
	run, status, err := b.sandbox(gate)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := run.NoteLost(ctx); err != nil {
		b.log.Warn("lost commands not recorded", "err", err)
	}
	return &link.Link{
		Sandbox: run.Sandbox, Keys: run.Keys, Host: b.host, Arrive: func() link.Execute { return run.Arrive().Execute },
		Recordings: b.recordings, Revision: b.cfg.Revision, Log: b.log,
		Followed: feature.Of[feature.Followed](b.features), Joined: feature.Of[feature.Joined](b.features), Services: []feature.Router{b.features},
		Sync:   b.synced.Handler(),
		Grants: lifetime.New(lifetime.Options{Revoked: b.authority.Trust.Revocations.Set, Skew: jws.Skew}),
	}, status, nil
}

// isolated reports whether each terminal has a user of its own.
func (b *builder) isolated() bool { return b.host.Isolation() == terminal.IsolationUID }

// peers returns what tells whose process connects; nil where terminals share a
// user.
func (b *builder) peers() peer.Users {
	if b.isolated() {
		return peer.Kernel
	}
	return nil
}

// network adds what stands between programs and the network: approvals, the
// broker, variables and secrets, and the egress proxy.
func (b *builder) network() (*egress.Gate, error) {
	sandbox := b.identity.Enrolment.SandboxID
	key, err := b.identity.Device.ECDH()
	if err != nil {
		return nil, err
	}
	static, err := outbound.ParseStatic(b.cfg.OutboundHosts)
	if err != nil {
		return nil, fmt.Errorf("--outbound-hosts: %w", err)
	}
	rules, err := egress.OpenRules(filepath.Join(b.cfg.StateDir, "egress.json"), b.cfg.Egress)
	if err != nil {
		return nil, err
	}
	approvals, err := approval.Open(approval.Options{
		Dir: filepath.Join(b.cfg.StateDir, "approvals"), Logger: b.log,
		Listeners: []approval.Listener{b.audit, b.authority.Outbox},
	})
	if err != nil {
		return nil, err
	}
	b.features.Add(approvals, approval.Metrics{Log: approvals})
	dialer := &outbound.Dialer{Static: static}
	brokers, err := broker.NewServer(broker.Options{
		Listener: b.listeners.broker, Dialer: dialer, Peers: b.peers(), Asker: approvals, Log: b.log,
		Masker: func() broker.Masker { return b.secrets.Stream() },
	})
	if err != nil {
		return nil, err
	}
	b.features.Add(brokers, broker.Metrics{Server: brokers})
	b.features.Add(approval.Decisions{Approvals: approvals, Egress: rules, Broker: brokers, Log: b.log})
	b.approvals, b.variables = approvals, environment.New(environment.Options{
		Broker: brokers, Terminals: b.programs, Masks: b.secrets, Seal: environment.DeviceSeal{Key: key, Sandbox: sandbox},
	})
	b.features.Add(b.variables)
	proxy, err := egress.New(egress.Config{
		Listener: b.listeners.egress, Rules: rules, Approver: approvals, Dialer: dialer, Agent: b.ports, Peers: b.peers(), Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	gate := egress.NewGate(egress.GateOptions{
		Sandbox: sandbox, On: b.cfg.Egress, Isolated: b.isolated(), Rules: rules, Proxy: proxy, Static: static.Hosts(), Log: b.log,
	})
	b.features.Add(gate, egress.Metrics{Proxy: proxy}) // its variables count before those of users
	return gate, nil
}

// agents adds what coding agents work with: tools, the files, the session's
// browser, accounts that people have attached, and settings in which agents find
// all that.
func (b *builder) agents(gate *egress.Gate) error {
	options := workspace.Options{Dir: b.cfg.Workspace, Logger: b.log}
	if b.isolated() {
		options.Own, options.Owner = b.host.OwnsUID, b.fileOwner
	}
	tree, err := workspace.Open(options)
	if err != nil {
		return err
	}
	b.features.Add(&tools.Terminals{Host: b.host}, &files.Files{
		FS: tree, Marked: files.DefaultMarked, Log: b.log, Redact: func() files.Masker { return b.secrets.Stream() },
	})
	own := filepath.Join(b.cfg.Homes, ".fairlead")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	refused := browser.NewMetrics()
	browsers, err := browser.New(browser.Options{
		Dir: filepath.Join(own, "browser"), Accounts: b.host, Start: b.startBrowser, Egress: gate, Ports: b.ports,
		Peers: peer.Kernel, Files: jarfile.Writer{Command: []string{b.program, WriteCookies}}, Secrets: b.secrets, Metrics: refused, Log: b.log,
	})
	if err != nil {
		return err
	}
	b.browsers = watchedBrowser{browsers, &activity.Log{}}
	b.features.Add(b.browsers, refused)
	if err := b.sync(browsers); err != nil {
		return err
	}
	plugins := plugin.New(plugin.Options{Ports: b.ports, Terminals: b.programs, Log: b.log})
	b.features.Add(plugins)
	server := mcp.New(mcp.Options{
		Listener: b.listeners.mcp, Terminals: b.programs, Sessions: &b.opened, Plugins: plugins, Sets: []toolbox.Set{b.features}, Peers: b.peers(),
		Secrets: b.secrets, Version: b.cfg.Revision, Log: b.log,
	})
	b.features.Add(server)
	accounts, err := integration.New(integration.Options{
		Client: integration.Client{Requests: b.authority.Credentials}, Listener: server, Log: b.log,
	})
	if err != nil {
		return err
	}
	b.features.Add(accounts, hooks.Feature{Command: b.program}, panel.New(b.host.Setup().SearchPath))
	return nil
}

// sync adds what people's browsers send of themselves to a session's.
func (b *builder) sync(browsers *browser.Browser) error {
	key, err := b.identity.Device.ECDH()
	if err != nil {
		return err
	}
	sandbox, counted := b.identity.Enrolment.SandboxID, cookies.NewMetrics()
	b.synced, err = cookies.Open(cookies.Options{
		Dir: filepath.Join(b.cfg.StateDir, "sync"), Sandbox: sandbox, Seal: cookies.DeviceSeal{Key: key, Sandbox: sandbox},
		Chromium: browsers, Audit: b.audit, Isolated: b.isolated(), Unisolated: b.cfg.SyncUnisolated, Metrics: counted, Log: b.log,
	})
	if err != nil {
		return err
	}
	browsers.Keep(b.synced)
	b.features.Add(b.synced, counted)
	return nil
}

// newPrograms returns what runs in the host's terminals, and for conversations.
func (b *builder) newPrograms() programs {
	return programs{b.host, codingagent.New(codingagent.Options{
		Accounts: b.host.Accounts(), Setup: b.host.Setup(), Features: b.features, AllowPrivileges: b.cfg.AllowPrivileges, Log: b.log,
	})}
}

// conversations adds the conversations with coding agents. Their programs end
// before what they find around them.
func (b *builder) conversations() error {
	b.features.Add(b.programs.agents)
	images, err := history.OpenAssets(filepath.Join(b.cfg.StateDir, "images"))
	if err != nil {
		return err
	}
	providers := provider.All(provider.Options{ContextWindow: int64(b.cfg.ChatWindow)})
	b.opened.Hosting = chat.NewHosting(b.programs.agents, b.variables)
	tabs := &bound{Programs: b.opened.Hosting}
	start := &bringing{Programs: tabs}
	chats, err := chat.Open(chat.Options{
		Dir: filepath.Join(b.cfg.StateDir, "chat"), Workspace: b.cfg.Workspace, Providers: providers,
		Programs: start, Assets: images,
		Approvals: b.approvals, Secrets: b.secrets, Revoked: b.authority.Trust.Revocations.Set, Log: b.log,
		MaxRuns: b.cfg.ChatRuns, Silence: b.cfg.ChatSilence, Patience: b.cfg.ChatPatience, WarmFor: b.cfg.ChatWarmFor, MaxWarm: b.cfg.ChatWarm,
	})
	if err != nil {
		return err
	}
	b.opened.chats = chats
	b.features.Add(b.opened.Hosting, chats, chat.Reader{Chats: chats}, chat.Metrics{Chats: chats})
	start.history, err = history.New(history.Options{
		Workspace: b.cfg.Workspace, Conversations: chats, Runs: chats, Providers: providers, ChatHomes: chatHomes{b.programs.agents},
		Programs: &history.Installation{SearchPath: b.host.Setup().SearchPath, Starter: b.programs.agents}, Assets: images, Variables: variableNames{b.variables},
		Database: dbread.Reader{Command: []string{b.program, ReadDatabase}}, Masker: masker{b.secrets}, ContextWindow: int64(b.cfg.ChatWindow), Log: b.log,
	})
	if err != nil {
		return err
	}
	if tabs.panels, err = b.sidebars(chats); err != nil {
		return err
	}
	b.history = start.history
	b.features.Add(start.history, history.Metrics{History: start.history})
	return nil
}

// sidebars adds the chat of side panels.
func (b *builder) sidebars(chats *chat.Chats) (*sidebar.Sidebars, error) {
	panels, err := sidebar.Open(sidebar.Options{
		Dir: filepath.Join(b.cfg.StateDir, "sidebar"), Workspace: b.cfg.Workspace, Conversations: panelTalks{chats},
		Browser: b.browsers, Activity: b.browsers.activity, Tools: b.browsers.panelTools(),
		Revoked: b.authority.Trust.Revocations.Set, Secrets: b.secrets, Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	b.browsers.Observe(panels)
	b.features.Add(panels)
	return panels, nil
}

// fileOwner returns the uid that files have which people put into the workspace:
// a terminal's, so that programs may change their mode. Any will do, for
// terminals share the workspace.
func (b *builder) fileOwner() (uid int, ok bool) {
	for _, t := range b.host.Running() {
		return t.UID, true
	}
	return terminal.DefaultFirstUID, true
}

// startBrowser starts a session's browser so that all it starts is found again,
// and gains no privileges. The thread is the browser's own.
func (b *builder) startBrowser(cmd *exec.Cmd) (kill func(), err error) {
	if !b.cfg.AllowPrivileges {
		if err := process.Confine(); err != nil {
			return nil, err
		}
	}
	return process.StartMarked(cmd)
}

// sandbox adds what is about the sandbox as a whole: its terminals, which end
// before anything else, its commands, its metrics, and how it says that it is.
func (b *builder) sandbox(gate *egress.Gate) (*executor.Executor, *reporter, error) {
	b.features.Add(&preview.Preview{Ports: b.ports, Log: b.log})
	b.features.Add(feature.Sandbox{Sessions: b.features, Grants: b.authority.Trust.Revocations, Log: b.log})
	b.features.Add(terminal.Feature{Host: b.host, Operator: continuing{b.host, b.programs.agents, b.opened.chats, b.history}})
	run := &executor.Executor{
		Sandbox: b.identity.Enrolment.SandboxID, Keys: b.authority.Trust.Keys, Device: b.identity.Device, Ledger: b.ledger, Audit: b.audit,
		Operations: b.features.Operations(), Memory: b.features, Callbacks: b.authority.Outbox,
		Now: time.Now, Log: b.log,
	}
	status := &reporter{
		cfg: &b.cfg, log: b.log, news: b.news, health: health{b.tunnels, b.authority, b.ledger, b.audit, gate},
	}
	b.features.Add(executor.Metrics{Executor: run}, b.tunnels, status, healthMetrics{status.health})
	shown, err := metrics.New(metrics.Options{
		Terminals: b.host, Egress: gate, Collectors: b.features.Collectors(),
		Workspace: b.cfg.Workspace, Revision: b.cfg.Revision, Started: time.Now(), Log: b.log,
	})
	if err != nil {
		return nil, nil, err
	}
	b.features.Add(shown)
	return run, status, nil
}
