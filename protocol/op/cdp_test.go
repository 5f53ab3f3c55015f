package op

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestCheckCDP: only what is listed may be called, with the members that are
// listed.
func TestCheckCDP(t *testing.T) {
	for _, c := range []struct {
		method, params string
		kind           protocol.Kind
	}{
		{"Browser.close", ``, protocol.KindForbidden},
		{"Browser.setDownloadBehavior", `{"behavior":"allow","downloadPath":"/"}`, protocol.KindForbidden},
		{"Target.createTarget", `{"url":"file:///etc/passwd"}`, protocol.KindForbidden},
		{"Target.attachToTarget", `{"targetId":"x"}`, protocol.KindForbidden},
		{"DOM.setFileInputFiles", `{"files":["/etc/passwd"],"nodeId":1}`, protocol.KindForbidden},
		{"Input.dispatchDragEvent", `{}`, protocol.KindForbidden},
		{"Network.getAllCookies", ``, protocol.KindForbidden},
		{"Storage.getCookies", ``, protocol.KindForbidden},
		{"Fetch.disable", ``, protocol.KindForbidden},
		{"Page.setDownloadBehavior", `{"behavior":"allow"}`, protocol.KindForbidden},
		{"IO.read", `{"handle":"1"}`, protocol.KindForbidden},
		{"runtime.evaluate", `{"expression":"1"}`, protocol.KindForbidden},
		{"", ``, protocol.KindForbidden},
		{strings.Repeat("x", 10000), ``, protocol.KindForbidden},
		{"Runtime.evaluate", `{"expression":"1","includeCommandLineAPI":true}`, protocol.KindForbidden},
		{"Runtime.evaluate", `{"Expression":"1"}`, protocol.KindForbidden},
		{"Page.createIsolatedWorld", `{"frameId":"1","grantUniveralAccess":true}`, protocol.KindForbidden},
		{"Page.stopLoading", `{"x":1}`, protocol.KindForbidden},
		{"Runtime.evaluate", `[]`, protocol.KindInvalid},
		{"Runtime.evaluate", `{"expression":"1","expression":"2"}`, protocol.KindInvalid},
		{"Runtime.evaluate", `{"expression":`, protocol.KindInvalid},
		{"Page.navigate", ``, protocol.KindInvalid},
		{"Page.navigate", `{"url":5}`, protocol.KindInvalid},
		{"Page.navigate", `{"url":"file:///etc/passwd"}`, protocol.KindInvalid},
		{"Page.navigate", `{"url":"http://x","URL":"file:///etc/passwd"}`, protocol.KindForbidden},
		{"Page.navigate", `{"url":"http://x","referrer":"http://y"}`, protocol.KindForbidden},
	} {
		if _, err := CheckCDP(c.method, json.RawMessage(c.params)); err == nil || protocol.KindOf(err) != c.kind || len(err.Error()) > 300 {
			t.Errorf("%.50s %s: %v", c.method, c.params, err)
		}
	}
	for _, params := range []string{``, `null`, ` {} `} {
		if kept, err := CheckCDP("Page.stopLoading", json.RawMessage(params)); err != nil {
			t.Errorf("%q: %v %v", params, kept, err)
		}
	}
}

// TestAllowedCDP: the list names none of the methods and members that reach
// files, other tabs or the process.
func TestAllowedCDP(t *testing.T) {
	for method, allowed := range allowedCDP {
		domain, _, _ := strings.Cut(method, ".")
		switch domain {
		case "Page", "Runtime", "DOM", "Input", "Emulation", "Accessibility":
		default:
			t.Errorf("%s is of another domain", method)
		}
		for member := range strings.FieldsSeq(allowed.members) {
			if lower := strings.ToLower(member); strings.Contains(lower, "file") || strings.Contains(lower, "path") || strings.Contains(lower, "commandline") {
				t.Errorf("%s may have %s", method, member)
			}
		}
	}
}
