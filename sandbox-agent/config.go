package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
)

// Config is what an agent is told at its start.
type Config struct {
	StateDir  string   // 0700: device key, ledger, cached keys
	Enrolment string   // file; default enrolment.json in StateDir
	Workspace string   // what terminals start in
	Homes     string   // one home below it for each terminal
	Relays    []string // "host:port", tried as they are listed; default: the enrolment's newest, in an order of the sandbox's own
	Carrier   string   // how relays are reached: CarrierAuto (the default), "quic" or "websocket"
	Revision  string
	Logger    *slog.Logger

	Invitation string        // file; exchanged where there is no enrolment
	KeysMaxAge time.Duration // how long keys are believed without news; default DefaultKeysMaxAge
	StatusFile string        // tells how the agent is, at each change; empty: none does

	BrokerListen    string // loopback "host:port"; default DefaultBrokerListen
	EgressListen    string // loopback "host:port"; default DefaultEgressListen
	MCPListen       string // loopback "host:port"; default DefaultMCPListen
	UserEntries     bool   // users of terminals have entries in /etc/passwd while they run
	AllowPrivileges bool   // terminals' programs may gain privileges, by sudo or the like
	SyncUnisolated  bool   // people's cookies are taken also where every program could read them
	// ProgramPath lists folders of programs, which terminals and conversations have
	// in their PATH before all others.
	ProgramPath []string

	Egress        bool     // terminals go through the egress proxy, unless their session says otherwise
	OutboundHosts []string // "name=ip[:port]"

	SpillDir         string // keeps older output of terminals; empty: none is kept
	SpillPerTerminal int    // bytes; default DefaultSpillPerTerminal
	SpillTotal       int    // bytes; default DefaultSpillTotal

	ChatRuns     int           // runs of coding agents at the same time; default protocol.MaxChatRuns
	ChatSilence  time.Duration // how long a run may print nothing; default chat.DefaultSilence
	ChatPatience time.Duration // how long a coding agent's question waits; default chat.DefaultPatience
	ChatWarm     int           // processes that wait for another message; default chat.DefaultMaxWarm, less than 0: none
	ChatWarmFor  time.Duration // how long; default chat.DefaultWarmFor
	ChatWindow   int           // tokens of the context of claude's models; 0: as claude says

	patience time.Duration // see uplink.Options; for tests
}

// CarrierAuto reaches relays by QUIC where that gets through and by WebSocket
// elsewhere.
const CarrierAuto = "auto"

// carriers returns those by which relays may be reached; none: by any.
func (c *Config) carriers() []tunnel.Carrier {
	if c.Carrier == CarrierAuto || c.Carrier == "" {
		return nil
	}
	return []tunnel.Carrier{tunnel.Carrier(c.Carrier)}
}

// Defaults of Config. Loopback services (ports of seed 001) take any other port as
// well, 0 included: terminals learn it from their environment.
const (
	DefaultMCPListen        = "127.0.0.1:8081"
	DefaultBrokerListen     = "127.0.0.1:8082"
	DefaultEgressListen     = "127.0.0.1:8083"
	DefaultKeysMaxAge       = time.Hour // without news of the keys
	DefaultSpillPerTerminal = 64 << 20  // bytes
	DefaultSpillTotal       = 1 << 30   // bytes

	DefaultChatSilence  = chat.DefaultSilence
	DefaultChatPatience = chat.DefaultPatience
	DefaultChatWarm     = chat.DefaultMaxWarm
	DefaultChatWarmFor  = chat.DefaultWarmFor
)

// searchPath returns the PATH of programs in the sandbox, own being the folder
// of this one.
func (c *Config) searchPath(own string) string {
	return strings.Join(append(slices.Clone(c.ProgramPath), terminal.DefaultSearchPath, own), ":")
}

// check completes c and reports what is missing.
func (c *Config) check() error {
	for _, needed := range []struct {
		name string
		path *string
	}{
		{"state-dir", &c.StateDir}, {"workspace", &c.Workspace}, {"homes", &c.Homes},
	} {
		if *needed.path == "" {
			return fmt.Errorf("--%s is needed", needed.name)
		}
		// Terminals start elsewhere, and a home is told to them by its path.
		path, err := filepath.Abs(*needed.path)
		if err != nil {
			return fmt.Errorf("--%s: %w", needed.name, err)
		}
		*needed.path = path
	}
	if err := c.checkSpill(); err != nil {
		return err
	}
	for _, dir := range c.ProgramPath {
		if !filepath.IsAbs(dir) || strings.Contains(dir, ":") {
			return fmt.Errorf("--program-path: %q is not an absolute path of a folder", dir)
		}
	}
	c.BrokerListen, c.EgressListen = cmp.Or(c.BrokerListen, DefaultBrokerListen), cmp.Or(c.EgressListen, DefaultEgressListen)
	c.MCPListen = cmp.Or(c.MCPListen, DefaultMCPListen)
	c.KeysMaxAge = cmp.Or(c.KeysMaxAge, DefaultKeysMaxAge)
	if c.KeysMaxAge < 0 {
		return errors.New("--keys-max-age must be more than 0")
	}
	if c.ChatRuns < 0 || c.ChatSilence < 0 || c.ChatPatience < 0 || c.ChatWarmFor < 0 || c.ChatWindow < 0 {
		return errors.New("--chat-runs, --chat-silence, --chat-patience, --chat-warm-for and --chat-window must be more than 0")
	}
	if c.Enrolment == "" {
		c.Enrolment = filepath.Join(c.StateDir, authority.EnrolmentFile)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Carrier = cmp.Or(c.Carrier, CarrierAuto)
	if _, err := tunnel.ParseCarrier(c.Carrier); err != nil && c.Carrier != CarrierAuto {
		return fmt.Errorf("--carrier: %w, and %s", err, CarrierAuto)
	}
	for _, addr := range c.Relays {
		if err := protocol.CheckAddr(addr); err != nil {
			return fmt.Errorf("--relays: %w", err)
		}
	}
	return nil
}

// checkSpill completes what is said about older output.
func (c *Config) checkSpill() error {
	if c.SpillDir == "" {
		return nil
	}
	path, err := filepath.Abs(c.SpillDir)
	if err != nil {
		return fmt.Errorf("--spill-dir: %w", err)
	}
	c.SpillDir = path
	c.SpillPerTerminal = cmp.Or(c.SpillPerTerminal, DefaultSpillPerTerminal)
	c.SpillTotal = cmp.Or(c.SpillTotal, DefaultSpillTotal)
	switch {
	case c.SpillPerTerminal < 0:
		return errors.New("--spill-per-terminal: not a number of bytes")
	case c.SpillTotal < 0:
		return errors.New("--spill-total: not a number of bytes")
	}
	return nil
}
