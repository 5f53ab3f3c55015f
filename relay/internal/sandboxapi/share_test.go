package sandboxapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestShare(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	_, viewer := w.authority.Grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView, protocol.CapShell} })
	const path = "/sessions/ses_1/ptys/pty_1/share"
	for name, c := range map[string]struct {
		token, body string
		want        int
	}{
		"without control": {viewer, `{"with":"session"}`, 403},
		"with nobody":     {token, `{}`, 400},
		"with no id":      {token, `{"with":"*"}`, 400},
		"another member":  {token, `{"with":"none","pty":"pty_2"}`, 400},
		"no body":         {token, "", 400},
		"no credential":   {"", `{"with":"none"}`, 401},
	} {
		t.Run(name, func(t *testing.T) { expect(t, w.do(http.MethodPost, path, c.token, c.body), c.want, `"error"`) })
	}
	if len(w.signed) != 0 {
		t.Errorf("asked the control plane for %+v", w.signed)
	}
	w.execute = func(c *jws.Command) protocol.Result {
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), With: "pty_2"})
	}
	expect(t, w.do(http.MethodPost, path, token, `{"with":"pty_2"}`), http.StatusOK, `{"with":"pty_2"}`)
	if op := w.lastOp(); !strings.Contains(op, `"kind":"terminal.share"`) || !strings.Contains(op, `"with":"pty_2"`) {
		t.Errorf("signed %s", op)
	}
}
