package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// TestAllowedCDP: the list of what may be called names methods that there are.
func TestAllowedCDP(t *testing.T) {
	for _, method := range op.AllowedCDPMethods() {
		if _, err := cdproto.UnmarshalMessage(&cdproto.Message{ID: 1, Method: cdproto.MethodType(method), Params: []byte("{}")}); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestCDP: methods are carried out on the session's tab, and what Chromium says
// comes back.
func TestCDP(t *testing.T) {
	w := theWorld(t)
	send := func(method, params string) (string, error) {
		answer, err := w.CDP(t.Context(), session, op.CDPSend{Method: method, Params: json.RawMessage(params)})
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
