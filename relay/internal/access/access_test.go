package access

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestBearer(t *testing.T) {
	for _, c := range []struct {
		name   string
		header []string
		want   string // empty: refused
	}{
		{"plain", []string{"Bearer abc.def.ghi"}, "abc.def.ghi"},
		{"scheme in any case", []string{"bEARER abc"}, "abc"},
		{"none", nil, ""},
		{"empty", []string{""}, ""},
		{"scheme alone", []string{"Bearer"}, ""},
		{"scheme and space", []string{"Bearer "}, ""},
		{"another scheme", []string{"Basic abc"}, ""},
		{"two headers", []string{"Bearer abc", "Bearer abc"}, ""},
		{"largest", []string{"Bearer " + strings.Repeat("a", protocol.MaxTokenBytes)}, strings.Repeat("a", protocol.MaxTokenBytes)},
		{"too large", []string{"Bearer " + strings.Repeat("a", protocol.MaxTokenBytes+1)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header["Authorization"] = c.header
			got, err := Bearer(r)
			if got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("Bearer = %.20q, %v", got, err)
			}
			if err != nil && protocol.KindOf(err) != protocol.KindUnauthenticated {
				t.Errorf("kind %s", protocol.KindOf(err))
			}
		})
	}
}

func TestGrant(t *testing.T) {
	authority, stranger := relaytest.NewAuthority(t), relaytest.NewAuthority(t)
	want, token := authority.Grant(nil)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	grant, compact, err := Grant(r, authority.Keys)
	if err != nil || grant.ID != want.ID || compact != token {
		t.Errorf("Grant = %+v, %v", grant, err)
	}
	if _, _, err := Grant(r, stranger.Keys); err == nil || protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("signed by another key: %v", err)
	}
}

func TestReadJSON(t *testing.T) {
	pad := func(n int) string { return `{"a":"` + strings.Repeat("x", n-len(`{"a":""}`)) + `"}` }
	for _, c := range []struct {
		name, body string
		want       protocol.Kind
		ok         bool
	}{
		{name: "object", body: `{"a":"b"}`, ok: true},
		{name: "spaces around", body: " \n{\"a\":\"b\"}\t\n", ok: true},
		{name: "largest", body: pad(maxBody), ok: true},
		{name: "too large", body: pad(maxBody + 1), want: protocol.KindTooLarge},
		{name: "empty", body: "", want: protocol.KindInvalid},
		{name: "null", body: "null", want: protocol.KindInvalid},
		{name: "array", body: `[{"a":"b"}]`, want: protocol.KindInvalid},
		{name: "string", body: `"a"`, want: protocol.KindInvalid},
		{name: "unknown member", body: `{"a":"b","c":1}`, want: protocol.KindInvalid},
		{name: "wrong type", body: `{"a":1}`, want: protocol.KindInvalid},
		{name: "truncated", body: `{"a":"b"`, want: protocol.KindInvalid},
		{name: "two objects", body: `{"a":"b"}{"a":"c"}`, want: protocol.KindInvalid},
		{name: "something after", body: `{"a":"b"}x`, want: protocol.KindInvalid},
		{name: "not UTF-8", body: "{\"a\":\"\xff\"}", want: protocol.KindInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v struct {
				A string `json:"a"`
			}
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
			err := ReadJSON(httptest.NewRecorder(), r, &v)
			if (err == nil) != c.ok || err != nil && protocol.KindOf(err) != c.want {
				t.Errorf("%v, want ok %v or kind %s", err, c.ok, c.want)
			}
		})
	}
}

func TestReadJSONOfABrokenBody(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(errors.New("secret of the network")))
	err := ReadJSON(httptest.NewRecorder(), r, &struct{}{})
	if err == nil || protocol.KindOf(err) != protocol.KindInvalid || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestWriteErrorShowsNoCause(t *testing.T) {
	w := httptest.NewRecorder()
	WriteError(w, protocol.Fault(protocol.KindUpstream, errors.New("10.0.0.7: refused")))
	want := `{"error":{"message":"upstream failed","name":"InternalError"}}`
	if w.Code != http.StatusBadGateway || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", w.Header())
	}
	w = httptest.NewRecorder()
	WriteError(w, errors.New("unclassified"))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "unclassified") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestWriteJSONOfWhatIsNoJSON(t *testing.T) {
	w := httptest.NewRecorder()
	WriteJSON(w, http.StatusOK, make(chan int))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "InternalError") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
