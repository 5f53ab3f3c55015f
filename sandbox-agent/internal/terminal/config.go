package terminal

import (
	"log/slog"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
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

	DefaultSearchPath = launch.DefaultSearchPath
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
	// Leases, if any, is told of each change of a terminal's lease, one after the
	// other and a terminal's in their order. A change is left out, which its
	// revision shows, when maxLeaseChanges wait.
	Leases LeaseLog
	// Turns, if any, is told of each turn that a coding agent has finished, as
	// everybody sees it.
	Turns TurnLog
	// Features, if any, are what programs find around them.
	Features Features
}

// A LeaseLog records who controls terminals. The audit log is one.
type LeaseLog interface {
	Lease(session protocol.SessionID, pty protocol.PTYID, lease protocol.Lease, cause string)
}

// A TurnLog records the turns of coding agents. It must not block.
type TurnLog interface{ Turn(protocol.PTYCompleted) }

// Features are what the programs of terminals find around them. [feature.Set] is
// all of them.
type Features interface {
	// TerminalStarts is called for a new terminal, which doesn't start when it
	// fails, and again for each coding agent in front of one.
	feature.Starter
	// FurnishHome is called for a new terminal, and again for each known coding
	// agent.
	feature.Furnisher
	// TerminalEnded is called once for each terminal for which TerminalStarts
	// didn't fail.
	feature.Ender
}
