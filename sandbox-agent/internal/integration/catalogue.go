package integration

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// The tools of each provider, as data: its name, what it is called at the
// gateway, whether it only reads, and what MCP says of it.
//
//go:embed tools/*.json
var toolFiles embed.FS

// A definition is a tool before it has a caller.
type definition struct {
	protocol.Tool
	Action   string `json:"action"` // with the provider before it
	ReadOnly bool   `json:"readOnly"`
}

// always are the providers that need no integration, attachable those that a
// person attaches an account of; in the order in which their tools are listed.
var (
	always     = []string{"dashboard", "tasks", "memory"}
	attachable = []string{"gmail", "github", "google_drive", "google_calendar"}
)

// catalogue returns the tools of each provider. It fails in no build that passes
// this package's tests.
var catalogue = sync.OnceValues(func() (map[string][]definition, error) {
	all := make(map[string][]definition)
	for _, provider := range append(append([]string{}, always...), attachable...) {
		data, err := toolFiles.ReadFile("tools/" + provider + ".json")
		if err != nil {
			return nil, err
		}
		var tools []definition
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&tools); err != nil {
			return nil, fmt.Errorf("tools of %s: %w", provider, err)
		}
		for i := range tools {
			var schema bytes.Buffer
			if err := json.Compact(&schema, tools[i].InputSchema); err != nil {
				return nil, fmt.Errorf("tool %s: %w", tools[i].Name, err)
			}
			tools[i].InputSchema = schema.Bytes()
		}
		all[provider] = tools
	}
	return all, nil
})
