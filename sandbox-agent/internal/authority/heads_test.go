package authority

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestHeadRefused: an audit log that went back is a problem until a head is
// accepted.
func TestHeadRefused(t *testing.T) {
	w := newWorld(t)
	h := w.open().Heads
	var heads []protocol.AuditHead
	answers := func(status int, message string) {
		w.Handle("POST "+headPath, func(rw http.ResponseWriter, r *http.Request) {
			var req protocol.AuditHeadRequest
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
				t.Error(err)
			}
			heads = append(heads, req.Head)
			if status != http.StatusNoContent {
				refuse(rw, status, message)
				return
			}
			rw.WriteHeader(status)
		})
	}
	w.audit.sequence = 1
	answers(http.StatusServiceUnavailable, "later")
	if h.look(within(t)); h.posted != 0 || h.Problem() != "" {
		t.Errorf("posted %d, %q", h.posted, h.Problem())
	}
	answers(http.StatusConflict, "the audit log went back from record 9 to 1")
	if h.look(within(t)); h.posted != 0 || !strings.Contains(h.Problem(), "from record 9 to 1") || len(w.changed) != 1 {
		t.Errorf("posted %d, %q, %d changes", h.posted, h.Problem(), len(w.changed))
	}
	answers(http.StatusServiceUnavailable, "later")
	if h.look(within(t)); h.Problem() == "" {
		t.Error("forgotten before a head was accepted")
	}
	answers(http.StatusNoContent, "")
	if h.look(within(t)); h.posted != 1 || h.Problem() != "" {
		t.Errorf("posted %d, %q", h.posted, h.Problem())
	}
	n := len(heads)
	if h.look(within(t)); len(heads) != n {
		t.Errorf("posted again: %v", heads[n:])
	}
	w.audit.sequence = 2
	if h.look(within(t)); h.posted != 2 || len(heads) != n+1 {
		t.Errorf("posted %d", h.posted)
	}
}
