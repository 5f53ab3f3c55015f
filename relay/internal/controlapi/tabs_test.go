package controlapi

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol/jws"
)

// What a page reports goes to the control plane with its grant, and its answer
// comes back as it is.
func TestSharedTabs(t *testing.T) {
	var asked []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		io.WriteString(rw, `{"tabs":[{"tabId":7}],"commands":[]}`)
	})
	_, token := w.authority.Grant(mayMCP)
	_, viewer := w.authority.Grant(nil)
	_, foreign := w.authority.Grant(func(g *jws.Grant) { mayMCP(g); g.Session = "ses_2" })
	report := `{"browserId":"` + laptop + `","extensionId":"abc","tabs":[{"tabId":7,"title":"a","url":"https://a.example/","expiresAt":1}]}`
	const path = "/sessions/ses_1/tabs"
	expect(t, w.do(http.MethodPut, path, token, report), http.StatusOK, `"tabId":7`)
	expect(t, w.do(http.MethodGet, path, viewer, ""), http.StatusOK, `"tabId":7`)
	want := []string{
		`/internal/tabs Bearer relay-secret {"grant":"` + token + `","session":"ses_1",` + report[1:],
		`/internal/tabs/list Bearer relay-secret {"grant":"` + viewer + `","session":"ses_1"}`,
	}
	if strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked %q", asked)
	}
	for _, bearer := range []string{viewer, foreign} {
		expect(t, w.do(http.MethodPut, path, bearer, report), http.StatusForbidden, "AuthError")
	}
	expect(t, w.do(http.MethodGet, path, foreign, ""), http.StatusForbidden, "AuthError")
	expect(t, w.do(http.MethodGet, path, "", ""), http.StatusUnauthorized, "AuthError")
	expect(t, w.do(http.MethodPut, path, token, `{"browserId":"x","tab":[]}`), http.StatusBadRequest, "RequestError")
	expect(t, w.do(http.MethodPut, path, token, `{"x":"`+strings.Repeat("a", maxTabsReport)+`"}`), http.StatusRequestEntityTooLarge, "LimitError")
	if len(asked) != 2 {
		t.Errorf("the control plane was asked %d times", len(asked))
	}
}

func TestTabsWhileTheControlPlaneIsAway(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	_, token := w.authority.Grant(mayMCP)
	expect(t, w.do(http.MethodGet, "/sessions/ses_1/tabs", token, ""), http.StatusServiceUnavailable, "InternalError")
}
