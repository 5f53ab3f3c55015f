package feature

import (
	"context"
	"io"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// A Router serves HTTP routes under /sessions/{sid}/ to relays, see package
// route.
type Router interface{ Routes(mux *http.ServeMux) }

// A Front sees requests before the mux does, which cleans paths: some are another
// program's.
type Front interface {
	Front(next http.Handler) http.Handler
}

// An Operator carries out signed commands.
type Operator interface{ Operations() Operations }

// A Rememberer keeps what tells whether a command was carried out, also over a
// crash that took the command's outcome.
type Rememberer interface {
	// Remember returns what became of a command that an earlier process of the agent
	// began: its result, or an error if nothing of it was done. known is false if
	// that can't be told.
	Remember(command *jws.Command, body op.Body) (result protocol.OpResult, err error, known bool)
}

// A Starter has a say in each program that is about to start in a terminal: the
// terminal's own, and each coding agent in front of it. An error keeps it from
// starting.
type Starter interface{ TerminalStarts(start *Start) error }

// A Furnisher writes into the homes of terminals what their programs read. The
// error names the file that is in the way. A terminal starts all the same and
// shows it; a coding agent doesn't start.
type Furnisher interface{ FurnishHome(home Home) error }

// An Ender forgets a terminal of which nothing runs any more, before another one
// can get its uid.
type Ender interface{ TerminalEnded(terminal Terminal) }

// A SessionEnder forgets a session that was deleted.
type SessionEnder interface {
	SessionEnded(session protocol.SessionID) error
}

// A Reconnecter is told when a tunnel stands: what was pushed to the sandbox
// before may be lost.
type Reconnecter interface{ Reconnected() }

// A Runner works until ctx ends, and returns when nothing of it goes on.
type Runner interface{ Run(ctx context.Context) }

// parts say whether a value brings one thing along. A feature brings at least
// one: otherwise a method is spelled wrongly.
var parts = []func(any) bool{
	is[Router], is[Front], is[Followed], is[Joined], is[Operator], is[toolbox.Set], is[Starter], is[Furnisher], is[Ender], is[SessionEnder],
	is[Reconnecter], is[Runner], is[io.Closer], is[prometheus.Collector],
}

func is[T any](feature any) bool {
	_, ok := feature.(T)
	return ok
}

// A Terminal is one that is about to start, runs, or has ended.
type Terminal struct {
	Session protocol.SessionID
	PTY     protocol.PTYID
	UID     int // of its programs; −1: the agent's own
}

// A Start is a program about to start in a terminal. Features add to it.
type Start struct {
	Terminal
	Create op.PTYCreate // how the terminal was made

	// Env is what the program has in its environment beyond what every terminal
	// has, as "NAME=value". Of two with the same name the later counts.
	Env []string
	// Credentials are the terminal's for the agent's MCP listener; nil: it has
	// none.
	Credentials *protocol.MCPCredentials
	// Egress says how far the program is kept to the egress proxy; empty: it isn't
	// sent there.
	Egress protocol.EgressState
}

// A Home is the home of a terminal's programs.
type Home struct {
	Terminal
	GID   int      // of its programs; −1: the agent's own
	Root  *os.Root // valid during the call
	Agent string   // the known coding agent that is about to start; "": the terminal itself
	// ToolsOnly says that nobody waits for what hooks of coding agents report.
	ToolsOnly bool
}
