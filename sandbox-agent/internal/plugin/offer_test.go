package plugin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

// TestOffer: a program registers by its terminal's secret, waits until its port is
// open, and is told why it can't be.
func TestOffer(t *testing.T) {
	var asked atomic.Int32
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var offer pluginsocket.Offer
		err := json.NewDecoder(r.Body).Decode(&offer)
		switch {
		case err != nil || r.Method != http.MethodPost || r.URL.Path != "/sessions/ses_1/ptys/pty_1/plugins" || r.Header.Get(protocol.MCPSecretHeader) != "s3cret":
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte(`{"error":{"message":"the secret is not that of this terminal"}}`))
		case offer.Name == "redirect":
			http.Redirect(w, r, "http://example.invalid/", http.StatusFound)
		case offer.Name == "taken":
			w.WriteHeader(http.StatusConflict)
			w.Write([]byte(`{"error":{"message":"another terminal has it"}}`))
		case asked.Add(1) < 3:
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"error":{"message":"nothing listens on port 7"}}`))
		default:
			json.NewEncoder(w).Encode(pluginsocket.Info{Name: offer.Name, PTYID: "pty_1", Port: offer.Port})
		}
	}))
	defer agent.Close()
	c := protocol.MCPCredentials{URL: agent.URL + "/sessions/ses_1/mcp", SessionID: "ses_1", PTYID: "pty_1", Secret: "s3cret"}
	if _, err := Offer(t.Context(), c, pluginsocket.Offer{Name: "it", Port: 7}, 0); err == nil || err.Error() != "nothing listens on port 7" {
		t.Errorf("without patience: %v", err)
	}
	info, err := Offer(t.Context(), c, pluginsocket.Offer{Name: "it", Port: 7}, time.Minute)
	if err != nil || info.Name != "it" || info.Port != 7 {
		t.Errorf("%+v %v", info, err)
	}
	for name, want := range map[string]string{"taken": "another terminal has it", "redirect": "the sandbox agent answered 302"} {
		if _, err := Offer(t.Context(), c, pluginsocket.Offer{Name: name, Port: 7}, time.Minute); err == nil || err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.Secret = "other"
	if _, err := Offer(t.Context(), c, pluginsocket.Offer{Name: "it", Port: 7}, time.Minute); err == nil || strings.Contains(err.Error(), "other") {
		t.Error(err)
	}
}
