package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

var (
	gmail = []Action{{"gmail.search", true}, {"gmail.get", true}, {"gmail.send", false}, {"gmail.archive", false}}
	code  = []Action{{"github.list_repos", true}, {"github.get_file", true}, {"github.create_issue", false}}
	files = []Action{{"google_drive.list", true}, {"google_drive.create", false}}
	dates = []Action{{"google_calendar.list_events", true}, {"google_calendar.delete_event", false}}
)

func actionsOf(provider string) []Action {
	return map[string][]Action{"gmail": gmail, "github": code, "google_drive": files, "google_calendar": dates}[provider]
}

// TestDecide: one row for each rule, with what it lets through and what not.
func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, provider, policy string
		action                 string
		touched                []Resource
		reason                 string // empty: allowed
	}{
		{"nothing is limited", "gmail", `{}`, "gmail.send", nil, ""},
		{"reading", "gmail", `{"read_only":true}`, "gmail.search", nil, ""},
		{"reading only", "gmail", `{"read_only":true}`, "gmail.send", nil, "reading only"},
		{"reading only beats allow", "gmail", `{"read_only":true,"allow":["gmail.send"]}`, "gmail.send", nil, "reading only"},
		{"allowed", "gmail", `{"allow":["gmail.search"]}`, "gmail.search", nil, ""},
		{"all are allowed", "gmail", `{"allow":["gmail.*"]}`, "gmail.send", nil, ""},
		{"not among the allowed", "gmail", `{"allow":["gmail.search"]}`, "gmail.get", nil, "doesn't allow gmail.get"},
		{"denied", "gmail", `{"deny":["gmail.send"]}`, "gmail.send", nil, "denies gmail.send"},
		{"deny beats allow", "gmail", `{"allow":["gmail.send"],"deny":["gmail.*"]}`, "gmail.send", nil, "denies"},
		{"another is denied", "gmail", `{"deny":["gmail.send"]}`, "gmail.archive", nil, ""},

		{"recipient", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", []Resource{{Recipient, "a.b+c@Example.com"}}, ""},
		{"one recipient of two", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send",
			[]Resource{{Recipient, "a@example.com"}, {Recipient, "a@evil.example"}}, `excludes the recipient "a@evil.example"`},
		{"domain that ends alike", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", []Resource{{Recipient, "a@evilexample.com"}}, "excludes"},
		{"domain below", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", []Resource{{Recipient, "a@example.com.evil.example"}}, "excludes"},
		{"two addresses in one", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", []Resource{{Recipient, "a@evil.example,b@example.com"}}, "excludes"},
		{"star takes no at sign", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", []Resource{{Recipient, "a@b@example.com"}}, "excludes"},
		{"address with a name", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", []Resource{{Recipient, "<a@evil.example> x@example.com"}}, "excludes"},
		{"Kelvin sign for k", "gmail", `{"gmail":{"recipients":["mike@example.com"]}}`, "gmail.send", []Resource{{Recipient, "mi\u212ae@example.com"}}, "excludes"},
		{"no recipient", "gmail", `{"gmail":{"recipients":["*@example.com"]}}`, "gmail.send", nil, "can't be told"},
		{"sender of what is changed", "gmail", `{"gmail":{"senders":["boss@example.com"]}}`, "gmail.archive", []Resource{{Sender, "boss@example.com"}}, ""},
		{"another sender", "gmail", `{"gmail":{"senders":["boss@example.com"]}}`, "gmail.archive", []Resource{{Sender, "x@example.com"}}, "excludes"},
		{"unknown sender", "gmail", `{"gmail":{"senders":["boss@example.com"]}}`, "gmail.archive", nil, "can't be told"},
		{"what is read is filtered", "gmail", `{"gmail":{"senders":["boss@example.com"]}}`, "gmail.search", nil, ""},
		{"sending where senders are limited", "gmail", `{"gmail":{"senders":["boss@example.com"]}}`, "gmail.send", []Resource{{Recipient, "x@y.example"}}, ""},

		{"repository", "github", `{"github":{"repos":["acme/*"]}}`, "github.create_issue", []Resource{{Repo, "Acme/site"}}, ""},
		{"another owner", "github", `{"github":{"repos":["acme/*"]}}`, "github.get_file", []Resource{{Repo, "evil/acme"}}, "excludes"},
		{"owner that begins alike", "github", `{"github":{"repos":["acme/*"]}}`, "github.get_file", []Resource{{Repo, "acmee/site"}}, "excludes"},
		{"one repository", "github", `{"github":{"repos":["acme/site"]}}`, "github.get_file", []Resource{{Repo, "acme/site2"}}, "excludes"},
		{"path for a repository", "github", `{"github":{"repos":["acme/*"]}}`, "github.get_file", []Resource{{Repo, "acme/../evil"}}, "excludes"},
		{"every repository", "github", `{"github":{"repos":["*"]}}`, "github.get_file", []Resource{{Repo, "evil/site"}}, ""},

		{"folder", "google_drive", `{"google_drive":{"folders":["f1"]}}`, "google_drive.create", []Resource{{Folder, "f1"}}, ""},
		{"no folder", "google_drive", `{"google_drive":{"folders":["f1"]}}`, "google_drive.create", []Resource{{Folder, ""}}, "excludes"},
		{"folder in another case", "google_drive", `{"google_drive":{"folders":["f1"]}}`, "google_drive.create", []Resource{{Folder, "F1"}}, "excludes"},
		{"calendar", "google_calendar", `{"google_calendar":{"calendars":["primary"]}}`, "google_calendar.delete_event", []Resource{{Calendar, "primary"}}, ""},
		{"calendar with a Kelvin sign", "google_calendar", `{"google_calendar":{"calendars":["work"]}}`, "google_calendar.list_events", []Resource{{Calendar, "wor\u212a"}}, "excludes"},
		{"another calendar", "google_calendar", `{"google_calendar":{"calendars":["primary"]}}`, "google_calendar.list_events", []Resource{{Calendar, "team"}}, "excludes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Parse(tt.provider, actionsOf(tt.provider), []byte(tt.policy))
			if err != nil {
				t.Fatal(err)
			}
			var action Action
			for _, a := range actionsOf(tt.provider) {
				if a.Name == tt.action {
					action = a
				}
			}
			d := p.Decide(action, tt.touched)
			if d.Allowed != (tt.reason == "") || !strings.Contains(d.Reason, tt.reason) || d.Allowed != (d.Reason == "") {
				t.Errorf("%+v, want %q", d, tt.reason)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ provider, policy string }{
		"an unknown member":           {"gmail", `{"readonly":true}`},
		"a member twice":              {"gmail", `{"read_only":true,"read_only":false}`},
		"an unknown action":           {"gmail", `{"deny":["gmail.sent"]}`},
		"another provider's action":   {"gmail", `{"deny":["github.get_file"]}`},
		"all of another provider":     {"gmail", `{"allow":["github.*"]}`},
		"another provider's section":  {"gmail", `{"github":{"repos":["a/b"]}}`},
		"an unknown limit":            {"gmail", `{"gmail":{"from":["a@b"]}}`},
		"an empty rule":               {"gmail", `{"gmail":{"senders":[""]}}`},
		"a rule with a space":         {"gmail", `{"gmail":{"senders":["a b@c"]}}`},
		"a rule that is too long":     {"gmail", `{"gmail":{"senders":["` + strings.Repeat("a", MaxRuleBytes+1) + `"]}}`},
		"too many rules":              {"gmail", `{"gmail":{"senders":["a"` + strings.Repeat(`,"a"`, MaxRules) + `]}}`},
		"a repository without owner":  {"github", `{"github":{"repos":["site"]}}`},
		"a repository that is a path": {"github", `{"github":{"repos":["a/b/c"]}}`},
		"a list":                      {"gmail", `[]`},
		"a number":                    {"gmail", `{"read_only":1}`},
		"nothing":                     {"gmail", ``},
	} {
		if _, err := Parse(tt.provider, actionsOf(tt.provider), []byte(tt.policy)); err == nil || protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDefault(t *testing.T) {
	p := Default()
	if p.Limited() || p.Permits(Action{"gmail.send", false}).Allowed || !p.Permits(Action{"gmail.get", true}).Allowed {
		t.Errorf("%+v", p)
	}
	data, err := p.JSON()
	if err != nil || string(data) != `{"read_only":true}` {
		t.Errorf("%s, %v", data, err)
	}
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true},
		{"*", "a@b", true},
		{"a*c", "abc", true},
		{"a*c", "ac", true},
		{"a*c", "acb", false},
		{"a*b*c", "aXbYc", true},
		{"*a@b", "xa@b", true},
		{"*@b", "x@y@b", false},
		{"", "", true},
		{"", "a", false},
		{"**@b", "a@b", true},
		{"*a*a*a*a*a*@b", strings.Repeat("a", 200) + "@c", false},
	} {
		if got := glob(tt.pattern, tt.text, '@'); got != tt.want {
			t.Errorf("%q covers %q: %v", tt.pattern, tt.text, got)
		}
	}
}

// FuzzParse: a policy that was taken is taken again as it is kept, and decides
// alike.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"read_only":true,"allow":["gmail.*"],"gmail":{"senders":["*@b"]}}`), "a@b")
	f.Fuzz(func(t *testing.T, data []byte, sender string) {
		p, err := Parse("gmail", gmail, data)
		if err != nil {
			return
		}
		kept, err := p.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("gmail", gmail, kept)
		if err != nil {
			t.Fatalf("%s: %v", kept, err)
		}
		for _, a := range gmail {
			touched := []Resource{{Sender, sender}}
			if p.Decide(a, touched) != again.Decide(a, touched) {
				t.Errorf("%s decides otherwise than %s", kept, data)
			}
		}
		if !json.Valid(kept) {
			t.Errorf("%s", kept)
		}
	})
}
