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
	Places   Places
	Activity *activity.Log
}

// Places say where calls of tools are carried out.
type Places interface {
	// Place returns the tab that a call is for, as far as known, and how many are
	// open.
	Place(caller toolbox.Caller, args json.RawMessage) (tab, open int)
}

// ours are the tools in whose answers nothing is a page's. All others may say at least
// its title or address, which strangers choose.
var ours = []string{"browser_click", "browser_type", "browser_wait", "browser_scroll"}

// Tools implements [toolbox.Set].
func (w Watched) Tools(caller toolbox.Caller) []toolbox.Tool {
	all := slices.Clone(w.Set.Tools(caller))
	for i := range all {
		name, call := all[i].Name, all[i].Call
		all[i].Call = func(ctx context.Context, caller toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
			place := func() activity.Place {
				tab, open := w.Places.Place(caller, args)
				return activity.Place{Tab: tab, Open: open}
			}
			ended := w.Activity.Began(caller.Session, place(), name, args)
			result, err := call(ctx, caller, args)
			ended(place(), result, err)
			if caller.Grant != nil || slices.Contains(ours, name) {
				return result, err
			}
			if thrown := protocol.AsError(err); name == "browser_evaluate" && protocol.KindOf(err) == protocol.KindInvalid {
				result, err = toolbox.Text(thrown.Error()), nil // what the page has thrown
				result.IsError = true
			}
			return toolbox.Untrusted(result), err
		}
	}
	return all
}
