package shellapi

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Types of frames of a client. Any other is ignored, as seed 002 has it.
const (
	typeInit   = "init"
	typeInput  = "input"
	typeResize = "resize"
)

// Size of a terminal whose client doesn't say a possible one.
const (
	defaultCols = 80
	defaultRows = 24
)

// defaultProvider runs where a client names none.
const defaultProvider = "claude"

// A request is a frame of a client. A member of another type counts as absent.
type request struct {
	Type           text   `json:"type"`
	Data           text   `json:"data"`
	ProjectPath    text   `json:"projectPath"`
	SessionID      text   `json:"sessionId"`
	Provider       text   `json:"provider"`
	HasSession     flag   `json:"hasSession"`
	InitialCommand text   `json:"initialCommand"`
	IsPlainShell   flag   `json:"isPlainShell"`
	ForceRestart   flag   `json:"forceRestart"`
	Cols           number `json:"cols"`
	Rows           number `json:"rows"`
}

type (
	text   string
	flag   bool
	number int
)

func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
	}
	return nil
}

func (f *flag) UnmarshalJSON(data []byte) error {
	*f = flag(bytes.Equal(data, []byte("true")))
	return nil
}

func (n *number) UnmarshalJSON(data []byte) error {
	var f float64
	if json.Unmarshal(data, &f) == nil && f >= 1 && f <= protocol.MaxCols {
		*n = number(f)
	}
	return nil
}

// errFrame says that a frame isn't a JSON object.
var errFrame = errors.New("Invalid message: a JSON object is expected")

// parse reads a frame.
func parse(data []byte) (r request, err error) {
	if data = bytes.TrimLeft(data, " \t\r\n"); len(data) == 0 || data[0] != '{' || json.Unmarshal(data, &r) != nil {
		return request{}, errFrame
	}
	return r, nil
}

// size returns the size that r says.
func (r request) size() (cols, rows int) {
	cols, rows = int(r.Cols), min(int(r.Rows), protocol.MaxRows)
	if cols == 0 {
		cols = defaultCols
	}
	if rows == 0 {
		rows = defaultRows
	}
	return cols, rows
}

// shell returns what r wants to run.
func (r request) shell() *op.Shell {
	s := &op.Shell{
		ProjectPath: string(r.ProjectPath), SessionID: string(r.SessionID), Provider: string(r.Provider),
		HasSession: bool(r.HasSession), InitialCommand: string(r.InitialCommand), Plain: bool(r.IsPlainShell),
	}
	if s.Provider == "" {
		s.Provider = defaultProvider
	}
	return s
}
