package generator

import (
	"encoding/json"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// maxLine bounds a message between the processes, in bytes. The largest ones
// are snapshots, and answers that tell about every viewer.
const maxLine = 32 << 20

// A hello is the first line that a generator process is sent.
type hello struct {
	Name  string          `json:"name"` // of the process
	Kind  string          `json:"kind"`
	Index int             `json:"index"`
	Of    int             `json:"of"`
	Spec  json.RawMessage `json:"spec"`
}

// A request is each further line: something to do.
type request struct {
	ID    int             `json:"id"`
	Order string          `json:"order"`
	Arg   json.RawMessage `json:"arg,omitempty"`
	Phase string          `json:"phase"`
	Block int             `json:"block"`
	// Begin, for the order [orderBegin], is when measuring starts.
	Begin time.Time `json:"begin,omitzero"`
}

// Orders that every kind understands, beside its own.
const (
	orderPhase = "\x00phase" // what is recorded from now on belongs to another phase
	orderBegin = "\x00begin" // the warm-up ends
)

// A message is a line that a generator process writes. Exactly one of its
// members is set, but for an answer's.
type message struct {
	Ready    bool            `json:"ready,omitempty"`
	Fatal    string          `json:"fatal,omitempty"` // it couldn't begin, or go on
	ID       int             `json:"id,omitempty"`    // of the request that is answered
	Answer   json.RawMessage `json:"answer,omitempty"`
	Error    string          `json:"error,omitempty"` // of the answer
	Snapshot *taken          `json:"snapshot,omitempty"`
}

// A taken snapshot is what was recorded since the last one.
type taken struct {
	Phase string           `json:"phase"`
	Block int              `json:"block"`
	What  measure.Snapshot `json:"what"`
}
