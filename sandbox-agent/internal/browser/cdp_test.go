package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto"

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
		if _, err := checkCDP(protocol.CDPSend{Method: c.method, Params: json.RawMessage(c.params)}); err == nil || protocol.KindOf(err) != c.kind || len(err.Error()) > 300 {
			t.Errorf("%.50s %s: %v", c.method, c.params, err)
		}
	}
	for _, params := range []string{``, `null`, ` {} `} {
		if kept, err := checkCDP(protocol.CDPSend{Method: "Page.stopLoading", Params: json.RawMessage(params)}); err != nil {
			t.Errorf("%q: %v %v", params, kept, err)
		}
	}
}

// TestAllowedCDP: the list names methods that there are, and none of those that
// reach files, other tabs or the process.
func TestAllowedCDP(t *testing.T) {
	for method, allowed := range allowedCDP {
		domain, _, _ := strings.Cut(method, ".")
		switch domain {
		case "Page", "Runtime", "DOM", "Input", "Emulation", "Accessibility":
		default:
			t.Errorf("%s is of another domain", method)
		}
		if _, err := cdproto.UnmarshalMessage(&cdproto.Message{ID: 1, Method: cdproto.MethodType(method), Params: []byte("{}")}); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		for member := range strings.FieldsSeq(allowed.members) {
			if lower := strings.ToLower(member); strings.Contains(lower, "file") || strings.Contains(lower, "path") || strings.Contains(lower, "commandline") {
				t.Errorf("%s may have %s", method, member)
			}
		}
	}
}

// TestCDP: methods are carried out on the session's tab, and what Chromium says
// comes back.
func TestCDP(t *testing.T) {
	w := theWorld(t)
	send := func(method, params string) (string, error) {
		answer, err := w.CDP(t.Context(), session, protocol.CDPSend{Method: method, Params: json.RawMessage(params)})
		return string(answer), err
	}
	if answer, err := send("Page.navigate", `{"url":"`+w.site.URL+`/form"}`); err != nil || !strings.Contains(answer, "loaderId") {
		t.Errorf("%s %v", answer, err)
	}
	eventually(t, "there", func() bool { return w.text(t, "browser_get_title") == "form" })
	if answer, err := send("Runtime.evaluate", `{"expression":"1+1"}`); err != nil || !strings.Contains(answer, `"value":2`) {
		t.Errorf("%s %v", answer, err)
	}
	if answer, err := send("DOM.getDocument", `{"depth":1}`); err != nil || !strings.Contains(answer, `"nodeName":"#document"`) {
		t.Errorf("%s %v", answer, err)
	}
	if answer, err := send("DOM.querySelector", `{"nodeId":1,"selector":"#q"}`); err != nil && protocol.KindOf(err) != protocol.KindUpstream {
		t.Errorf("%s %v", answer, err)
	}
	if _, err := send("DOM.getAttributes", `{"nodeId":99999}`); protocol.KindOf(err) != protocol.KindUpstream {
		t.Errorf("%v", err)
	}
	for _, size := range []int{maxCDPAnswer, 1 << 20} {
		script := fmt.Sprintf(`{"expression":"'x'.repeat(%d)"}`, size)
		if answer, err := send("Runtime.evaluate", script); protocol.KindOf(err) != protocol.KindTooLarge {
			t.Errorf("%d: %d bytes, %v", size, len(answer), err)
		}
	}
	if _, err := send("Page.navigate", `{"url":"`+w.closed.URL+`"}`); err != nil {
		t.Error(err)
	}
	if hits := w.asked(); len(hits) > 0 {
		t.Errorf("%v", hits)
	}
}
