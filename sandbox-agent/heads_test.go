package agent

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestHeadRefused: an audit log that went back is a problem that everybody is
// told of, until a head is accepted; the agent stays ready.
func TestHeadRefused(t *testing.T) {
	w := newWorld(t)
	a := w.connected()
	var heads []protocol.AuditHead
	answers := func(status int, message string) {
		w.handle("POST "+headPath, func(rw http.ResponseWriter, r *http.Request) {
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
	record := func() {
		t.Helper()
		before, _, err := a.audit.Head()
		must(t, err)
		a.noteLease("ses_1", "pty_1", protocol.Lease{Term: 1})
		waitFor(t, "another head", func() bool {
			head, _, err := a.audit.Head()
			return err == nil && head.Sequence > before.Sequence
		})
	}
	problem := func() string {
		t.Helper()
		s := a.state(time.Now())
		if !s.Ready || len(s.Problems) > 1 {
			t.Fatalf("%+v", s)
		}
		if len(s.Problems) == 0 {
			return ""
		}
		if s.Problems[0].Name != protocol.ProblemAudit {
			t.Fatalf("%+v", s)
		}
		return s.Problems[0].Message
	}
	record()
	answers(http.StatusServiceUnavailable, "later")
	if posted := a.keepHead(within(t), 0); posted != 0 || problem() != "" {
		t.Errorf("posted %d, %q", posted, problem())
	}
	answers(http.StatusConflict, "the audit log went back from record 9 to 1")
	waitFor(t, "a refusal, over however many connections", func() bool {
		if posted := a.keepHead(within(t), 0); posted != 0 {
			t.Fatalf("posted %d", posted)
		}
		return strings.Contains(problem(), "from record 9 to 1")
	})
	answers(http.StatusServiceUnavailable, "later")
	if a.keepHead(within(t), 0); problem() == "" {
		t.Error("forgotten before a head was accepted")
	}
	answers(http.StatusNoContent, "")
	var posted uint64
	waitFor(t, "an accepted head", func() bool {
		posted = a.keepHead(within(t), 0)
		return posted > 0
	})
	if problem() != "" {
		t.Errorf("%q", problem())
	}
	n := len(heads)
	if again := a.keepHead(within(t), posted); again != posted || len(heads) != n {
		t.Errorf("posted again: %v", heads[n:])
	}
	record()
	waitFor(t, "the next head", func() bool { return a.keepHead(within(t), posted) > posted })
}
