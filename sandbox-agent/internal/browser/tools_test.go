package browser

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

var _ toolbox.Set = (*Browser)(nil)

// TestToolList: the reference's 14 tools and those for tabs, with schemas that are objects.
func TestToolList(t *testing.T) {
	b, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := strings.Fields("start stop status navigate screenshot click type get_content get_html get_url get_title wait evaluate scroll tabs tab_open tab_close tab_switch")
	tools := b.Tools(toolbox.Caller{})
	if len(tools) != len(want) {
		t.Fatalf("%d tools", len(tools))
	}
	for i, tool := range tools {
		var schema struct {
			Type       string
			Properties map[string]any
			Required   []string
		}
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil || schema.Type != "object" || schema.Properties == nil {
			t.Errorf("%s: %s: %v", tool.Name, tool.InputSchema, err)
		}
		for _, name := range schema.Required {
			if schema.Properties[name] == nil {
				t.Errorf("%s requires %s, which it doesn't describe", tool.Name, name)
			}
		}
		if tool.Name != "browser_"+want[i] || tool.Description == "" || tool.Call == nil {
			t.Errorf("%+v, want %s", tool, want[i])
		}
	}
}

// TestTools: each tool does what it says on a real page.
func TestTools(t *testing.T) {
	w := theWorld(t)
	if text := w.text(t, "browser_start"); !strings.Contains(text, `"state":"running"`) {
		t.Error(text)
	}
	if text := w.text(t, "browser_navigate", "url", w.site.URL+"/form"); !strings.Contains(text, `"title":"form"`) || !strings.Contains(text, `"loaded":true`) {
		t.Error(text)
	}
	value := func(id string) string { return w.evaluate(t, "document.getElementById('"+id+"').value") }
	w.text(t, "browser_type", "selector", "#name", "text", " and nëw")
	if got := value("name"); got != `"old and nëw"` {
		t.Error(got)
	}
	w.text(t, "browser_type", "selector", "//input[@id='name']", "text", "only", "clear", true)
	if got := value("name"); got != `"only"` {
		t.Error(got)
	}
	w.text(t, "browser_type", "selector", "#name", "text", "", "clear", true)
	if got := value("name"); got != `""` {
		t.Error(got)
	}
	w.text(t, "browser_type", "selector", "#list", "text", "two")
	if got := value("list"); got != `"b"` {
		t.Error(got)
	}
	w.text(t, "browser_type", "selector", "#rich", "text", "er")
	if got := w.text(t, "browser_get_content", "selector", "#rich"); got != "richer" {
		t.Error(got)
	}
	w.text(t, "browser_click", "selector", "#button")
	if got := w.text(t, "browser_get_title"); got != "clicked true" {
		t.Error(got)
	}
	w.text(t, "browser_click", "selector", "#far")
	if got := w.text(t, "browser_get_title"); got != "far" {
		t.Error(got)
	}
	if got := w.text(t, "browser_scroll", "y", -100000); !strings.Contains(got, `"y":0`) {
		t.Error(got)
	}
	if got := w.text(t, "browser_scroll", "selector", "#far"); strings.Contains(got, `"y":0,`) {
		t.Error(got)
	}
	w.text(t, "browser_wait", "selector", "#late")
	w.text(t, "browser_wait", "selector", "#hidden", "state", "present")
	w.text(t, "browser_wait", "selector", "#hidden", "state", "gone")
	if got := w.text(t, "browser_get_html", "selector", "#late"); got != `<p id="late">late</p>` {
		t.Error(got)
	}
	w.text(t, "browser_type", "selector", "#q", "text", "x y", "submit", true)
	eventually(t, "sent", func() bool { return w.text(t, "browser_get_url") == w.site.URL+"/sent?q=x+y" })
	for script, want := range map[string]string{
		"1+1": "2", "({a:[1,null]})": `{"a":[1,null]}`, "void 0": "undefined", "0/0": "NaN", "10n": "10n",
		"const a = await Promise.resolve('x'); a": `"x"`,
	} {
		if got := w.evaluate(t, script); got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}

// TestToolFailures: what can't be done is said as such.
func TestToolFailures(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/form")
	for _, c := range []struct {
		kind protocol.Kind
		tool string
		args []any
	}{
		{protocol.KindNotFound, "browser_click", []any{"selector", "#none", "timeout_seconds", 0.2}},
		{protocol.KindNotFound, "browser_click", []any{"selector", "#hidden", "timeout_seconds", 0.2}},
		{protocol.KindNotFound, "browser_wait", []any{"selector", "#none", "timeout_seconds", 0}},
		{protocol.KindNotFound, "browser_get_content", []any{"selector", "#none"}},
		{protocol.KindNotFound, "browser_scroll", []any{"selector", "#none"}},
		{protocol.KindInvalid, "browser_click", []any{"selector", "##"}},
		{protocol.KindInvalid, "browser_click", nil},
		{protocol.KindInvalid, "browser_click", []any{"selector", 5}},
		{protocol.KindInvalid, "browser_wait", []any{"selector", "#q", "state", "there"}},
		{protocol.KindInvalid, "browser_type", []any{"selector", "#list", "text", "three"}},
		{protocol.KindInvalid, "browser_type", []any{"selector", "#button", "text", "x", "timeout_seconds", 1, "submit", "yes"}},
		{protocol.KindInvalid, "browser_evaluate", []any{"script", "throw new Error('mine')"}},
		{protocol.KindInvalid, "browser_evaluate", []any{"script", "1 +"}},
		{protocol.KindTooLarge, "browser_evaluate", []any{"script", strings.Repeat(" ", maxScript+1)}},
		{protocol.KindTooLarge, "browser_type", []any{"selector", "#q", "text", strings.Repeat("x", maxTyped+1)}},
		{protocol.KindUpstream, "browser_navigate", []any{"url", "http://127.0.0.1:2/"}},
		{protocol.KindUpstream, "browser_navigate", []any{"url", "https://localhost:2/"}},
		{protocol.KindForbidden, "browser_navigate", []any{"url", w.closed.URL}},
		{protocol.KindForbidden, "browser_navigate", []any{"url", w.site.URL + "/redirect?to=" + w.closed.URL}},
	} {
		if result, err := w.call(c.tool, c.args...); protocol.KindOf(err) != c.kind || err == nil {
			t.Errorf("%s %.100v: %v %v", c.tool, c.args, result, err)
		}
	}
	if _, err := w.call("browser_evaluate", "script", "throw new Error('mine')"); err == nil || err.Error() != "Error: mine" {
		t.Errorf("%v", err)
	}
}

// TestScreenshot: a picture of the window, and one of a page that is higher.
func TestScreenshot(t *testing.T) {
	w := theWorld(t)
	w.visit(t, "/form")
	for _, full := range []bool{false, true} {
		result, err := w.call("browser_screenshot", "full_page", full)
		if err != nil || len(result.Content) != 1 {
			t.Fatalf("%+v %v", result, err)
		}
		content := result.Content[0]
		if content.Type != "image" || content.MIMEType != "image/png" || http.DetectContentType(content.Data) != "image/png" || len(content.Data) > maxScreenshot {
			t.Errorf("%s %s, %d bytes", content.Type, content.MIMEType, len(content.Data))
		}
	}
	// Noise can't be compressed: it comes as JPEG, and smaller.
	w.evaluate(t, `{ const c = document.createElement("canvas"); c.width = 1280; c.height = 2000; c.style.cssText = "position:absolute;top:0;left:0";
		const x = c.getContext("2d"), i = x.createImageData(1280, 2000);
		for (let n = 0; n < i.data.length; n += 65536) crypto.getRandomValues(i.data.subarray(n, n + 65536));
		x.putImageData(i, 0, 0); document.body.append(c); 1 }`)
	result, err := w.call("browser_screenshot", "full_page", true)
	if err != nil || len(result.Content) != 1 || result.Content[0].MIMEType != "image/jpeg" || len(result.Content[0].Data) > maxScreenshot {
		t.Errorf("%v", err)
	}
}
