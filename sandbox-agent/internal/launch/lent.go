package launch

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// Lent is a program that runs in a terminal under an account that isn't the
// terminal's: other programs run under it too, and it goes on after the terminal.
type Lent struct {
	Account account.Account
	Argv    []string // nobody outside may see more of it than the program's name
	Dir     string
	Env     []string     // all of it
	Mark    process.Mark // of all that the program starts
	Egress  protocol.EgressState
	Hidden  []string // masked in what the program prints, as secrets are
	Owner
}

// An Owner has lent something.
type Owner interface {
	// Return is called once nothing of the program runs any more, or if it wasn't
	// started. It may be called again.
	Return()
}
