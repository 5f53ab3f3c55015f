package web

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/protocol"
)

// TestJSON: the revision is a member beside those of the answer, if it has any.
func TestJSON(t *testing.T) {
	s := New(`re"v`, slog.New(slog.DiscardHandler), clock.Clock{})
	for _, tt := range []struct {
		answer any
		want   string
	}{
		{struct{}{}, `{"revision":"re\"v"}`},
		{map[string]int{"a": 1}, `{"a":1,"revision":"re\"v"}`},
		{[]int{1}, `{"error":{"message":"internal error","name":"InternalError"},"revision":"re\"v"}`},
	} {
		w := httptest.NewRecorder()
		s.Plain(func(w *Writer, _ *http.Request) error { return w.JSON(http.StatusOK, tt.answer) })(w, httptest.NewRequest("GET", "/", nil))
		if got := w.Body.String(); got != tt.want+"\n" {
			t.Errorf("%v: %s, want %s", tt.answer, got, tt.want)
		}
	}
}

func TestClasses(t *testing.T) {
	for status, want := range map[int]string{100: "2xx", 200: "2xx", 204: "2xx", 302: "3xx", 404: "4xx", 503: "5xx", 999: "5xx"} {
		if got := classOf(status); got != want {
			t.Errorf("%d is of class %s, want %s", status, got, want)
		}
	}
	if classOf(protocol.KindTooMany.Status()) != "4xx" {
		t.Error("classes are off by one")
	}
}

// FuzzLocalPath: what passes leads nowhere but to this origin, as a browser
// reads it.
func FuzzLocalPath(f *testing.F) {
	for _, seed := range []string{"/", "//x", "/\\x", "/a?b", "/%2f/x", "/\t/x"} {
		f.Add(seed)
	}
	base, err := url.Parse("https://fairlead.example")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !LocalPath(text) {
			return
		}
		to, err := base.Parse(text)
		if err != nil || to.Scheme != "https" || to.Host != base.Host || to.Fragment != "" || strings.ContainsAny(text, "\\\t\r\n") {
			t.Errorf("%q leads to %v, %v", text, to, err)
		}
	})
}
