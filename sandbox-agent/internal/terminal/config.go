package terminal

import (
	"log/slog"
	"os"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/passwd"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

// An Isolation says whether terminals are kept apart by the kernel.
type Isolation string

const (
	IsolationUID  Isolation = "uid"  // each PTY has a uid of its own; needs root
	IsolationNone Isolation = "none" // all run as the agent's user
)

// Defaults of Config.
const (
	DefaultFirstUID = 2000
	DefaultGID      = 2000 // the group "sandbox", by number
)

// Config says where and as whom terminals run.
type Config struct {
	Workspace string       // where they start; made when missing, shared by all
	Homes     string       // holds a home per terminal, made when missing
	Isolation Isolation    // default: uid when the agent is root, else none
	FirstUID  int          // default DefaultFirstUID
	GID       int          // default DefaultGID
	Shell     string       // default: $SHELL, /bin/bash or /bin/sh
	Logger    *slog.Logger // default: nowhere

	// AllowPrivileges lets terminals' programs gain privileges by what they run,
	// as sudo has to.
	AllowPrivileges bool

	// Passwd is the list of users in which those of terminals have an entry while
	// they run; nil: they have none.
	Passwd *passwd.File

	SearchPath string // PATH of terminals; default DefaultSearchPath

	Recordings *recording.Store // nil: nothing is recorded
	Spill      *spill.Store     // nil: a log is its window alone

	// Revoked are the grants that are void. Default: an empty set.
	Revoked *jws.RevocationSet
	// OnLease, if any, is told of each change of a terminal's lease, one after
	// the other and a terminal's in their order. A change is left out, which
	// its revision shows, when maxLeaseChanges wait for OnLease.
	OnLease func(protocol.SessionID, protocol.PTYID, protocol.Lease)

	// OnTurn, if any, is told of each turn that a coding agent has finished, as
	// everybody sees it.
	OnTurn func(protocol.SessionID, protocol.PTYID, protocol.AgentTurn)

	// Credentials, if any, returns those of a new terminal for the agent's MCP
	// listener. Its programs have them in their environment, and in its home.
	Credentials func(protocol.SessionID, protocol.PTYID) protocol.MCPCredentials
	// Wire, if any, has the coding agents of a terminal find the agent's tools
	// and report to it: writes into home what they read. It is called for a new
	// terminal, which starts whatever it returns and shows that, with agent "",
	// and again for each known coding agent, which doesn't start when it fails;
	// the error must name the file that is in the way. uid and gid are −1 where
	// terminals run as the agent's user.
	Wire func(home *os.Root, uid, gid int, session protocol.SessionID, pty protocol.PTYID, agent string) error

	// Environ, if any, returns what a program about to start has in its
	// environment beyond what every terminal has, and how far it is kept to the
	// egress proxy. uid is −1 where terminals run as the agent's user. It is
	// called for a new terminal, which doesn't start when it fails, and again
	// for each coding agent in front of one, with create as it was.
	Environ func(session protocol.SessionID, pty protocol.PTYID, uid int, create op.PTYCreate) (env []string, egress protocol.EgressState, err error)
	// OnEnd, if any, is called once for each terminal for which Environ didn't
	// fail, when nothing of it runs any more and before another one can get its
	// uid.
	OnEnd func(session protocol.SessionID, pty protocol.PTYID, uid int)
}
