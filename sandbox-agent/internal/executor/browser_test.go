package executor

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// fakeBrowser answers with what it was sent, or as much as it was asked for.
type fakeBrowser struct{ *fakeServices }

func (f fakeBrowser) CDP(_ context.Context, s protocol.SessionID, m op.CDPSend) (json.RawMessage, error) {
	f.note("cdp", string(s), m.Method, string(m.Params))
	if m.Method == "Page.large" {
		return json.Marshal(strings.Repeat("x", 64<<10))
	}
	return json.RawMessage(`{"said":1}`), nil
}

func TestCDP(t *testing.T) {
	b := newBench(t)
	c, calls := b.decideAs(`{"kind":"cdp.send","method":"Page.navigate","params":{"url":"about:blank"}}`)
	var result protocol.OpResult
	must(t, json.Unmarshal(c.Result, &result))
	if calls != `cdp ses_1 Page.navigate {"url":"about:blank"}` || string(result.CDP) != `{"said":1}` {
		t.Errorf("called %q: %s", calls, c.Result)
	}
	if c, _ := b.decideAs(`{"kind":"cdp.send","method":"Page.large"}`); errorName(c) != "LimitError" {
		t.Errorf("%+v", c.Error)
	}
}

func TestIntegrationsChanged(t *testing.T) {
	b := newBench(t)
	c := b.command(`{"kind":"integrations.changed"}`)
	c.Target.PTYID = "pty_1"
	b.execute(b.sign(c))
	if calls := b.terminals.called(); len(calls) != 1 || calls[0] != "integrations ses_1 pty_1" {
		t.Errorf("called %q", calls)
	}
}
