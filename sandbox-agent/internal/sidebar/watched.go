package sidebar

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// Watched are a browser's tools, of which the panel shows what they do. What a
// program reads of pages with them is marked, as strangers have written it.
type Watched struct {
	Set      toolbox.Set
	Activity *activity.Log
}

// reading are the tools whose texts are pages'.
var reading = []string{"browser_get_content", "browser_get_html", "browser_get_title", "browser_evaluate"}

// Tools implements [toolbox.Set].
func (w Watched) Tools(caller toolbox.Caller) []toolbox.Tool {
	all := slices.Clone(w.Set.Tools(caller))
	for i := range all {
		name, call := all[i].Name, all[i].Call
		all[i].Call = func(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
			ended := w.Activity.Began(caller.Session, name, args)
			result, err := call(ctx, caller, args)
			ended(result, err)
			if caller.Grant == nil && slices.Contains(reading, name) {
				result = toolbox.Untrusted(result)
			}
			return result, err
		}
	}
	return all
}
