package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A frankBrowser tells what its page holds.
type frankBrowser string

func (b frankBrowser) CDP(context.Context, protocol.SessionID, op.CDPSend) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"value": string(b)})
}

// What pages hold of the sandbox's secrets reaches neither who sends commands to
// the browser nor who asks how it stands.
func TestBrowserIsMasked(t *testing.T) {
	const secret = `sk-very"secret-value`
	set, err := redact.Compile([]string{secret})
	if err != nil {
		t.Fatal(err)
	}
	m := &masks{}
	m.set.Store(set)
	answer, err := maskedBrowser{frankBrowser("it is " + secret + ", you know"), m}.CDP(t.Context(), "ses_1", op.CDPSend{})
	var page struct{ Value string }
	if err != nil || json.Unmarshal(answer, &page) != nil || !strings.HasPrefix(page.Value, "it is *") || strings.Contains(page.Value, "secret") {
		t.Errorf("%s %v", answer, err)
	}
	s := m.status(protocol.BrowserStatus{State: "running", URL: "http://a/?key=" + secret + "&b", Title: secret + " page", Error: "no " + secret + " here"})
	if all := s.URL + s.Title + s.Error; strings.Contains(all, "secret") || s.State != "running" || !strings.HasSuffix(s.Title, " page") {
		t.Errorf("%+v", s)
	}
}
