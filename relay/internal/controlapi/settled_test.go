package controlapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound14Settled: a command for pages that was answered by way of another
// relay is over here too. The control plane, which says so, isn't told.
func TestFound14Settled(t *testing.T) {
	plane, reports := keepReports(http.StatusNoContent)
	w := newWorld(t, plane)
	_, token := w.authority.Grant(mayMCP)
	env := w.authority.Command(forPage)
	expect(t, w.post("/control/commands", env), http.StatusAccepted, `"pending"`)
	body := func(id protocol.CommandID) string {
		return `{"type":"control.callback","commandId":"` + string(id) + `","status":"ok","result":{"answered":"elsewhere"}}`
	}
	expect(t, w.do(http.MethodPost, "/control/settled", "ct_other", body(env.CommandID)), http.StatusUnauthorized)
	expect(t, w.do(http.MethodPost, "/control/settled", "", body(env.CommandID)), http.StatusUnauthorized)
	expect(t, w.do(http.MethodPost, "/control/settled", "ct_secret", body("cmd_elsewhere")), http.StatusNotFound)
	expect(t, w.do(http.MethodPost, "/control/settled", "ct_secret", "{}"), http.StatusBadRequest)
	status := "/control/commands/" + string(env.CommandID)
	expect(t, w.do(http.MethodGet, status, token, ""), http.StatusOK, `"pending"`)
	for range 2 {
		expect(t, w.do(http.MethodPost, "/control/settled", "ct_secret", body(env.CommandID)), http.StatusNoContent)
	}
	if answer := w.do(http.MethodGet, status, token, ""); !strings.Contains(answer.Body.String(), "elsewhere") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if n := len(reports()); n != 0 {
		t.Errorf("%d reports to the control plane", n)
	}
	w.api.Dispatcher.Close() // the withdrawal is waited for
}
