package sidebar

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// pages are tools that return what a page says.
type pages []string

func (p pages) Tools(toolbox.Caller) (all []toolbox.Tool) {
	for _, name := range p {
		all = append(all, toolbox.Tool{Tool: protocol.Tool{Name: name}, Call: func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			return toolbox.Text("a page"), nil
		}})
	}
	return all
}

// What a program reads of a page is marked; people get it as it is; both are
// watched.
func TestWatched(t *testing.T) {
	var log activity.Log
	w := Watched{pages{"browser_get_content", "browser_click"}, &log}
	said := func(caller toolbox.Caller, i int) string {
		caller.Session = session
		result, err := w.Tools(caller)[i].Call(t.Context(), caller, nil)
		if err != nil {
			t.Fatal(err)
		}
		return result.Content[0].Text
	}
	first, second := said(toolbox.Caller{PTY: "pty_1"}, 0), said(toolbox.Caller{PTY: "pty_1"}, 0)
	if !strings.Contains(first, "\na page\n</untrusted-page-") || first == second {
		t.Errorf("%q, %q", first, second)
	}
	if got := said(toolbox.Caller{Grant: &jws.Grant{}}, 0); got != "a page" {
		t.Errorf("a person gets %q", got)
	}
	if got := said(toolbox.Caller{PTY: "pty_1"}, 1); got != "a page" {
		t.Errorf("a click says %q", got)
	}
	if n := len(log.Newest(session, 100).Entries); n != 8 {
		t.Errorf("%d entries", n)
	}
}
