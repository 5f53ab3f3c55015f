package controlplane

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents"
)

func itemCall(method, token, path, body, version string) call {
	c := call{method, "/dashboards/dash_1/items" + path, token, body, nil}
	if version != "" {
		c.header = map[string]string{"If-Match": version}
	}
	return c
}

// editor makes bob an editor with everything that editors have.
func (p *plane) editor() {
	p.t.Helper()
	p.want(call{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken, `{"role":"editor"}`, nil}, http.StatusOK, "")
}

func TestItems(t *testing.T) {
	p := newPlane(t)
	p.editor()
	made := p.want(itemCall("POST", bobToken, "", `{"kind":"note","body":{"text":"hello","x":-3.5,"y":1}}`, ""), http.StatusCreated, "")["item"].(map[string]any)
	id := made["id"].(string)
	want := map[string]any{
		"id": id, "kind": "note", "body": map[string]any{"text": "hello", "x": -3.5, "y": 1.0},
		"version": 1.0, "updated_by": "usr_bob", "updated_at": "2026-11-20T12:00:00Z",
	}
	if !reflect.DeepEqual(made, want) {
		t.Errorf("made %v, want %v", made, want)
	}
	status, body, header := p.do(itemCall("GET", carolToken, "/"+id, "", ""))
	if status != http.StatusOK || !reflect.DeepEqual(body["item"], want) || header.Get("ETag") != `"1"` {
		t.Errorf("%d %v, ETag %s", status, body, header.Get("ETag"))
	}
	p.want(itemCall("POST", aliceToken, "", `{"kind":"todo","body":{"title":"t","items":[{"text":"a","done":true}]}}`, ""), http.StatusCreated, "")
	p.want(itemCall("POST", aliceToken, "", `{"kind":"layout","body":{"any":[1,{"thing":null}]}}`, ""), http.StatusCreated, "")
	for query, n := range map[string]int{"": 3, "?kind=note": 1, "?kind=todo": 1, "?kind=layout": 1} {
		if items := p.want(itemCall("GET", carolToken, query, "", ""), http.StatusOK, "")["items"].([]any); len(items) != n {
			t.Errorf("%q: %d items, want %d", query, len(items), n)
		}
	}
	p.want(itemCall("GET", carolToken, "?kind=x", "", ""), http.StatusBadRequest, "RequestError")

	for _, c := range []call{ // viewers read
		itemCall("POST", carolToken, "", `{"kind":"note","body":{"text":""}}`, ""),
		itemCall("PUT", carolToken, "/"+id, `{"body":{"text":""}}`, `"1"`),
		itemCall("DELETE", carolToken, "/"+id, "", ""),
	} {
		p.want(c, http.StatusForbidden, "AuthError")
	}
	p.nothing(itemCall("DELETE", bobToken, "/"+id, "", ""))
	p.want(itemCall("GET", bobToken, "/"+id, "", ""), http.StatusNotFound, "TargetError")
	p.want(itemCall("DELETE", bobToken, "/"+id, "", ""), http.StatusNotFound, "TargetError")
}

// TestItemVersion: of two who change the same version, one hears of the other.
func TestItemVersion(t *testing.T) {
	p := newPlane(t)
	id := p.want(itemCall("POST", aliceToken, "", `{"kind":"note","body":{"text":"1"}}`, ""), http.StatusCreated, "")["item"].(map[string]any)["id"].(string)
	change := `{"body":{"text":"2"}}`
	for _, version := range []string{"", "1", `""`, `"0"`, `"-1"`, `"+1"`, `"x"`, `W/"1"`, `*`, `"99999999999999999999"`} {
		p.want(itemCall("PUT", aliceToken, "/"+id, change, version), http.StatusBadRequest, "RequestError")
	}
	item := p.want(itemCall("PUT", aliceToken, "/"+id, change, `"1"`), http.StatusOK, "")["item"].(map[string]any)
	if item["version"] != 2.0 || item["body"].(map[string]any)["text"] != "2" {
		t.Errorf("item %v", item)
	}
	p.want(itemCall("PUT", aliceToken, "/"+id, change, `"1"`), http.StatusConflict, "RequestError")
	p.want(itemCall("PUT", aliceToken, "/"+id, change, `"3"`), http.StatusConflict, "RequestError")
	p.want(itemCall("PUT", aliceToken, "/"+id, `{"body":{"title":"a todo","items":[]}}`, `"2"`), http.StatusBadRequest, "RequestError")
	p.want(itemCall("PUT", aliceToken, "/itm_none", change, `"1"`), http.StatusNotFound, "TargetError")
}

func TestItemBodies(t *testing.T) {
	p := newPlane(t)
	long := strings.Repeat("x", contents.MaxNoteBytes+1)
	entries := strings.TrimSuffix(strings.Repeat(`{"text":"","done":false},`, 500+1), ",")
	for _, bad := range []string{
		`{"kind":"note"}`, `{"kind":"note","body":null}`, `{"kind":"note","body":[]}`, `{"kind":"note","body":"text"}`,
		`{"kind":"note","body":{"text":1}}`, `{"kind":"note","body":{"text":"a","size":3}}`,
		`{"kind":"note","body":{"text":"` + long + `"}}`,
		`{"kind":"note","body":{"text":"a","color":"red; background: url(x)"}}`,
		`{"kind":"note","body":{"text":"a","color":"#12345"}}`, `{"kind":"note","body":{"text":"a","color":"#+12345"}}`,
		`{"kind":"note","body":{"text":"a","x":1e9}}`,
		`{"kind":"note","body":{"text":"a","text":"b"}}`,
		`{"kind":"todo","body":{"title":"t","items":[` + entries + `]}}`,
		`{"kind":"todo","body":{"title":"` + long + `","items":[]}}`,
		`{"kind":"todo","body":{"title":"t","items":[{"text":"` + long + `","done":false}]}}`,
		`{"kind":"todo","body":{"title":"t","items":[{"text":"a","who":"b"}]}}`,
		`{"kind":"layout","body":[]}`, `{"kind":"layout","body":{"a":1,"a":2}}`,
		`{"kind":"browser","body":{"url":"javascript:alert(1)"}}`, `{"kind":"browser","body":{"url":"http://u:p@h"}}`, `{"kind":"browser","body":{}}`,
		`{"kind":"terminal","body":{"name":"a\tb"}}`, `{"kind":"terminal","body":{"name":"a","pty_id":"pty_1"}}`,
		`{"kind":"terminal","body":{"name":"a","session_id":"a b"}}`, `{"kind":"terminal","body":{"name":"a","command":"a\u200bb"}}`,
		`{"kind":"integration","body":{"provider":"x"}}`, `{"kind":"edge","body":{"from":"a"}}`, `{"kind":"edge","body":{"from":"a","to":"a"}}`,
		`{"kind":"picture","body":{}}`, `{"body":{}}`,
	} {
		p.want(itemCall("POST", aliceToken, "", bad, ""), http.StatusBadRequest, "RequestError")
	}
	for _, good := range []string{
		`{"kind":"note","body":{"text":"","color":"#a1B2c3"}}`, `{"kind":"note","body":{"text":"ä","color":"teal"}}`,
		`{"kind":"todo","body":{"title":"","x":2,"y":-2}}`, `{"kind":"layout","body":{}}`,
		`{"kind":"browser","body":{"url":"https://example.com:8443/ä?q#f","title":"ä","x":1}}`,
		`{"kind":"terminal","body":{"name":"","session_id":"ses_1","pty_id":"pty_1","command":"make"}}`,
		`{"kind":"integration","body":{"provider":"google_drive","y":1}}`,
	} {
		p.want(itemCall("POST", aliceToken, "", good, ""), http.StatusCreated, "")
	}
}

// TestEdges: an edge joins two items of its dashboard, once, and goes with them.
func TestEdges(t *testing.T) {
	p := newPlane(t)
	add := func(kind, body string) string {
		t.Helper()
		made := p.want(itemCall("POST", aliceToken, "", `{"kind":"`+kind+`","body":`+body+`}`, ""), http.StatusCreated, "")
		return made["item"].(map[string]any)["id"].(string)
	}
	a, b, c := add("note", `{"text":"a"}`), add("browser", `{"url":"https://b"}`), add("terminal", `{"name":"c"}`)
	layout := add("layout", `{}`)
	edge := func(from, to string) string { return `{"from":"` + from + `","to":"` + to + `"}` }
	ab, bc := add("edge", edge(a, b)), add("edge", edge(b, c))
	add("edge", edge(b, a))
	for body, status := range map[string]int{
		edge(a, b): http.StatusConflict, edge(a, a): http.StatusBadRequest, edge(a, ab): http.StatusBadRequest,
		edge(layout, a): http.StatusBadRequest, edge(a, "itm_none"): http.StatusNotFound,
	} {
		if got, answer, _ := p.do(itemCall("POST", aliceToken, "", `{"kind":"edge","body":`+body+`}`, "")); got != status {
			t.Errorf("%s: %d %v, want %d", body, got, answer, status)
		}
		if got, answer, _ := p.do(itemCall("PUT", aliceToken, "/"+bc, `{"body":`+body+`}`, `"1"`)); got != status {
			t.Errorf("%s: %d %v, want %d", body, got, answer, status)
		}
	}
	p.want(itemCall("PUT", aliceToken, "/"+ab, `{"body":{"from":"`+a+`","to":"`+b+`","label":"l"}}`, `"1"`), http.StatusOK, "")
	p.nothing(itemCall("DELETE", aliceToken, "/"+a, "", ""))
	items := p.want(itemCall("GET", aliceToken, "?kind=edge", "", ""), http.StatusOK, "")["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["id"] != bc {
		t.Errorf("%v", items)
	}
	p.nothing(itemCall("DELETE", aliceToken, "/"+bc, "", ""))
	p.want(itemCall("GET", aliceToken, "/"+c, "", ""), http.StatusOK, "")
}
