package protocol

import (
	"encoding/json"
	"errors"
)

// Status tells a relay a sandbox's problems, after the registration and at each
// change. An empty list means that there are none.
type Status struct {
	Problems []Problem `json:"problems"`
}

// A Problem is one problem of a sandbox.
type Problem struct {
	Name    string `json:"name"`
	Message string `json:"message"` // for an operator
}

// Names of problems.
const (
	ProblemLedger      = "ledger"      // commands are refused
	ProblemAudit       = "audit"       // what happens is not recorded, or not believed
	ProblemKeys        = "keys"        // the control plane's keys are too old
	ProblemCertificate = "certificate" // it expires soon and can't be renewed
)

// maxProblems bounds a Status.
const maxProblems = 16

// MarshalJSON writes an empty list as [], not null.
func (m Status) MarshalJSON() ([]byte, error) {
	type plain Status
	m.Problems = present(m.Problems)
	return json.Marshal(plain(m))
}

func (Status) FrameType() FrameType { return FrameStatus }

func (m Status) check() error {
	if len(m.Problems) > maxProblems {
		return errors.New("too many problems")
	}
	return nil
}
