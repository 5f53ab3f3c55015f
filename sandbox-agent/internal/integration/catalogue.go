package integration

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// The tools of each provider as data: the name, the gateway's name, whether it
// is read-only, and MCP's description.
//
//go:embed tools/*.json
var toolFiles embed.FS

// A definition is a tool without a caller.
type definition struct {
	protocol.Tool
	Action   string `json:"action"` // with the provider before it
	ReadOnly bool   `json:"readOnly"`
}

// tabs are the shared tabs of people's own browsers, which the control plane
// lists as a provider of all terminals of the session.
const tabs = "tabs"

// always are the providers that need no integration. attachable are those whose
// accounts, or tabs, a person attaches. Tools are listed in this order.
var (
	always     = []string{"dashboard", "tasks", "memory"}
	attachable = []string{"gmail", "github", "google_drive", "google_calendar", tabs}
)

// catalogue returns the tools of each provider. If this package's tests pass,
// it doesn't fail.
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
