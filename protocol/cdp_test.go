package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestCheckCDP: only what is listed may be called, with the members that are
// listed.
func TestCheckCDP(t *testing.T) {
	for _, c := range []struct {
		method, params string
		kind           Kind
	}{
		{"Browser.close", ``, KindForbidden},
		{"Browser.setDownloadBehavior", `{"behavior":"allow","downloadPath":"/"}`, KindForbidden},
		{"Target.createTarget", `{"url":"file:///etc/passwd"}`, KindForbidden},
		{"Target.attachToTarget", `{"targetId":"x"}`, KindForbidden},
		{"DOM.setFileInputFiles", `{"files":["/etc/passwd"],"nodeId":1}`, KindForbidden},
		{"Input.dispatchDragEvent", `{}`, KindForbidden},
		{"Network.getAllCookies", ``, KindForbidden},
		{"Storage.getCookies", ``, KindForbidden},
		{"Fetch.disable", ``, KindForbidden},
		{"Page.setDownloadBehavior", `{"behavior":"allow"}`, KindForbidden},
		{"IO.read", `{"handle":"1"}`, KindForbidden},
		{"runtime.evaluate", `{"expression":"1"}`, KindForbidden},
		{"", ``, KindForbidden},
		{strings.Repeat("x", 10000), ``, KindForbidden},
		{"Runtime.evaluate", `{"expression":"1","includeCommandLineAPI":true}`, KindForbidden},
		{"Runtime.evaluate", `{"Expression":"1"}`, KindForbidden},
		{"Page.createIsolatedWorld", `{"frameId":"1","grantUniveralAccess":true}`, KindForbidden},
		{"Page.stopLoading", `{"x":1}`, KindForbidden},
		{"Runtime.evaluate", `[]`, KindInvalid},
		{"Runtime.evaluate", `{"expression":"1","expression":"2"}`, KindInvalid},
		{"Runtime.evaluate", `{"expression":`, KindInvalid},
		{"Page.navigate", ``, KindInvalid},
		{"Page.navigate", `{"url":5}`, KindInvalid},
		{"Page.navigate", `{"url":"file:///etc/passwd"}`, KindInvalid},
		{"Page.navigate", `{"url":"http://x","URL":"file:///etc/passwd"}`, KindForbidden},
		{"Page.navigate", `{"url":"http://x","referrer":"http://y"}`, KindForbidden},
	} {
		if _, err := CheckCDP(CDPSend{Method: c.method, Params: json.RawMessage(c.params)}); err == nil || KindOf(err) != c.kind || len(err.Error()) > 300 {
			t.Errorf("%.50s %s: %v", c.method, c.params, err)
		}
	}
	for _, params := range []string{``, `null`, ` {} `} {
		if kept, err := CheckCDP(CDPSend{Method: "Page.stopLoading", Params: json.RawMessage(params)}); err != nil {
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
