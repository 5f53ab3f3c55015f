package mcp

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

// registry takes any plugin but one.
type registry struct{}

func (registry) Register(session protocol.SessionID, pty protocol.PTYID, offer pluginsocket.Offer) (pluginsocket.Info, error) {
	if offer.Name == "taken" {
		return pluginsocket.Info{}, protocol.Errorf(protocol.KindConflict, "another terminal has it")
	}
	return pluginsocket.Info{Name: offer.Name, PTYID: pty, Port: offer.Port}, nil
}

// TestRegisterPlugin: a plugin is that of the terminal whose secret is shown, and
// people can't register any.
func TestRegisterPlugin(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Plugins = registry{} })
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	const path = "/sessions/ses_1/ptys/pty_1/plugins"
	good := `{"name":"it","port":7}`
	for _, tt := range []struct {
		what   string
		r      request
		status int
		answer string
	}{
		{"its own", request{path: path, body: good}, 200, `{"name":"it","pty_id":"pty_1","port":7}`},
		{"a taken name", request{path: path, body: `{"name":"taken","port":7}`}, 409, `"another terminal has it"`},
		{"another terminal's secret", request{path: path, body: good, header: map[string]string{protocol.MCPSecretHeader: "secret-of-2"}}, 403, "secret"},
		{"no secret", request{path: path, body: good, header: map[string]string{protocol.MCPSecretHeader: ""}}, 403, "secret"},
		{"another session", request{path: strings.Replace(path, "ses_1", "ses_2", 1), body: good}, 403, "secret"},
		{"a web page", request{path: path, body: good, header: map[string]string{"Origin": "https://evil.example"}}, 403, "web pages"},
		{"no JSON", request{path: path, body: `{`}, 400, "JSON"},
		{"a relay", request{path: "/relay" + path, body: good, header: map[string]string{"X-Test-Grant": "ann"}}, 404, ""},
	} {
		tt.r.method = "POST"
		status, answer, _ := w.do(t, tt.r)
		if status != tt.status || !strings.Contains(answer, tt.answer) {
			t.Errorf("%s: %d %s", tt.what, status, answer)
		}
	}
}
