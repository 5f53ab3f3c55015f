package notices

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// FuzzApproval: what is taken is passed on as it was, and can be taken again.
func FuzzApproval(f *testing.F) {
	seed, err := json.Marshal(protocol.Approval{
		ID: "apr_1", Revision: 1, Kind: protocol.ApprovalEgress, SessionID: "ses_1", PTYID: "pty_1",
		Host: "unknown.example", Port: 443, State: protocol.ApprovalPending, AskedAt: 1, EndsAt: 60_001, LeftMs: 60_000,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"id":"a","revision":2,"kind":"broker","session_id":"s","host":"h","secret":"KEY","state":"decided","decision":"deny","more":1}`))
	f.Add([]byte(`{"id":"a","revision":1,"kind":"tool","session_id":"s","conversation_id":"c-1","run_id":"cmd_1","tool":"Bash","input":{"command":"ls"},"state":"pending"}`))
	f.Add([]byte(`{"id":"a","revision":2,"kind":"tool","session_id":"s","conversation_id":"c-1","tool":"Bash","state":"cancelled","ends_at":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseApproval(raw)
		if err != nil {
			if kind := protocol.KindOf(err); kind != protocol.KindInvalid {
				t.Errorf("%v is of kind %v", err, kind)
			}
			return
		}
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseApproval(data); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%s: %+v, then %+v, %v", raw, a, again, err)
		}
		if approvalTypes[a.State] == "" || strings.ContainsAny(a.Host, "\r\n") || a.Input != nil || (a.Host == "") != (a.Kind == protocol.ApprovalTool) {
			t.Errorf("%+v was taken", a)
		}
	})
}

// TestProgressIsBounded: one sandbox that tells too much is told so, and no
// other is.
func TestProgressIsBounded(t *testing.T) {
	n, now := newProgress(), time.Unix(1000, 0)
	tell := func(sandbox protocol.SandboxID, id int) error {
		_, err := n.take(sandbox, strconv.Itoa(id), 1, 1, now)
		return err
	}
	for i := range noticeBurst {
		if err := tell("sb_1", i); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := tell("sb_1", noticeBurst); protocol.KindOf(err) != protocol.KindTooMany || err == nil {
		t.Errorf("%v", err)
	}
	if err := tell("sb_2", 0); err != nil {
		t.Error(err)
	}
	for i := range 3 * maxNoticed {
		now = now.Add(time.Second / noticesPerSecond)
		if err := tell("sb_1", noticeBurst+i); err != nil {
			t.Fatal(i, err)
		}
	}
	of := n.sandboxes["sb_1"]
	if len(of.last) != maxNoticed || len(of.order) != maxNoticed {
		t.Errorf("%d and %d approvals are kept, want %d", len(of.last), len(of.order), maxNoticed)
	}
}

func TestNewWebhook(t *testing.T) {
	for _, tt := range []struct {
		cfg  WebhookConfig
		want string // error; empty: none
	}{
		{WebhookConfig{}, ""},
		{WebhookConfig{URL: "https://hooks.example/x", Secret: "0123456789abcdef"}, ""},
		{WebhookConfig{Secret: "0123456789abcdef"}, "no URL"},
		{WebhookConfig{URL: "https://hooks.example/x"}, "shorter than 16 bytes"},
		{WebhookConfig{URL: "http://hooks.example/x", Secret: "0123456789abcdef"}, "must be https"},
	} {
		sender, err := NewWebhook(tt.cfg, nil)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
		if (sender != nil) != (err == nil && tt.cfg.URL != "") {
			t.Errorf("%+v: sender %v", tt.cfg, sender)
		}
	}
}
