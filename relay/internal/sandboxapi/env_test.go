package sandboxapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func done(c *jws.Command) protocol.Result {
	return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
}

// The body is seed 001's, the operation that of the wire, and the target the
// session or one terminal of it.
func TestEnv(t *testing.T) {
	w := newWorld(t)
	w.execute = done
	_, token := w.authority.Grant(everything)
	const body = `{"set":{"A":"1"},"secrets":{"OPENAI_API_KEY":{"value":"sk-very-secret","broker_protected":true},"OWN":{"value":"eight888"}},
		"approved_domains":[{"secret_name":"OWN","domain":"api.example","header_name":"X-Key","header_format":"%s"}],"unset":["B"],"apply_now":true}`
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/env", token, body, "Idempotency-Key", "k"), http.StatusOK, `{"status":"ok"}`)
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys/pty_1/env", token, `{"unset":["B"]}`), http.StatusOK, `{"status":"ok"}`)
	op, _ := json.Marshal(w.signed[0].Op)
	want := `{"applyNow":true,"approvedDomains":[{"domain":"api.example","headerFormat":"%s","headerName":"X-Key","secret":"OWN"}],` +
		`"kind":"env.apply","secrets":{"OPENAI_API_KEY":{"brokerProtected":true,"value":"sk-very-secret"},"OWN":{"value":"eight888"}},` +
		`"set":{"A":"1"},"unset":["B"]}`
	if string(op) != want || w.signed[0].IdempotencyKey != "k" || w.signed[0].Target.PTYID != "" || w.signed[1].Target.PTYID != "pty_1" {
		t.Errorf("signed %s for %+v and %+v\nwant %s", op, w.signed[0].Target, w.signed[1].Target, want)
	}
}

// What is malformed is refused here, without a value in the answer.
func TestEnvRefuses(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(everything)
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"nothing":          {`{}`, 400},
		"no body":          {``, 400},
		"camelCase":        {`{"set":{"A":"leak"},"applyNow":true}`, 400},
		"camelCase deep":   {`{"secrets":{"A":{"value":"leakleak","brokerProtected":true}}}`, 400},
		"named twice":      {`{"set":{"A":"leak","A":"leak"}}`, 400},
		"short secret":     {`{"secrets":{"A":{"value":"leak"}}}`, 400},
		"a secret as text": {`{"secrets":{"A":"leakleak"}}`, 400},
		"reserved":         {`{"set":{"LD_PRELOAD":"leak"}}`, 400},
		"a name":           {`{"set":{"a b":"leak"}}`, 400},
		"large":            {`{"set":{"A":"` + strings.Repeat("leak", 20_000) + `"}}`, 413},
		"many":             {`{"set":{` + many(501) + `}}`, 413},
	} {
		answer := w.do(http.MethodPost, "/sessions/ses_1/env", token, c.body)
		if expect(t, answer, c.want, `"error"`); strings.Contains(answer.Body.String(), "leak") {
			t.Errorf("%s: %s", name, answer.Body)
		}
	}
	_, other := w.authority.Grant(func(g *jws.Grant) { g.PTYs, g.Caps = []string{"pty_2"}, protocol.Capabilities })
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys/pty_1/env", other, `{"set":{"A":"b"}}`), http.StatusForbidden)
	if len(w.signed) != 0 {
		t.Errorf("signed %+v", w.signed)
	}
}

func many(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"A%d":"x"`, i))
	}
	return strings.Join(list, ",")
}

// A value isn't in any log, answer or record, whatever goes wrong.
func TestEnvValuesStaySecret(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	w.api.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, token := w.authority.Grant(everything)
	const secret = "s3cr3t-value-of-mine"
	w.sign = func(answer http.ResponseWriter, r dispatch.SignRequest) { // as the control plane: values are sealed
		op, _ := json.Marshal(map[string]any{"kind": op.KindEnvApply, "names": []string{"TOKEN"}, "sealed": "AAAA"})
		r.Op = json.RawMessage(op)
		w.signAll(answer, r)
	}
	var ids []protocol.CommandID
	for _, execute := range []func(*jws.Command) protocol.Result{
		done, fails(protocol.KindInvalid, `{"status":"error","error":{"message":"TOKEN is no good","name":"RequestError"}}`), fails(0, "{"),
	} {
		w.execute = func(c *jws.Command) protocol.Result {
			ids = append(ids, c.CommandID)
			return execute(c)
		}
		answer := w.do(http.MethodPost, "/sessions/ses_1/env", token, `{"secrets":{"TOKEN":{"value":"`+secret+`"}}}`)
		if strings.Contains(answer.Body.String(), secret) {
			t.Errorf("%s", answer.Body)
		}
	}
	for _, id := range ids {
		record, ok := w.api.Dispatcher.Lookup(id)
		if !ok || strings.Contains(string(record.Command.Op)+string(record.Result.Callback), secret) {
			t.Errorf("record %s: %v", id, ok)
		}
	}
	if strings.Contains(log.String(), secret) || len(ids) != 3 {
		t.Errorf("%d commands, log %s", len(ids), log.String())
	}
}
