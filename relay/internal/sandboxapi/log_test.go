package sandboxapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
)

const logPath = "/sessions/ses_1/ptys/pty_1/log"

// output is what the terminal has printed since offset 100.
var output = bytes.Repeat([]byte("0123456789abcdef\x1b[1m\r\n"), 5000)

// serveLog is a sandbox whose log begins at offset 100.
func serveLog(t *testing.T, in *tunnel.Incoming) {
	var p protocol.ReadParams
	if err := json.Unmarshal(in.Open.Params, &p); err != nil {
		t.Error(err)
	}
	if p.SessionID != "ses_1" || p.PTYID != "pty_1" || p.Epoch != 7 {
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no such log"))
		return
	}
	from := max(p.From, 100)
	to := max(from, min(p.To, 100+uint64(len(output))))
	result, err := json.Marshal(protocol.ReadOpened{From: from, To: to, Cols: 80, Rows: 24})
	if err != nil {
		t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	for at := from; at < to; {
		n := min(to-at, protocol.MaxDataBytes)
		protocol.Write(stream, protocol.Resized{Offset: at, Cols: 90, Rows: 24})
		if protocol.Write(stream, protocol.Data{Offset: at, Bytes: output[at-100 : at-100+n]}) != nil {
			return
		}
		at += n
	}
}

func TestTheLog(t *testing.T) {
	w := newWorld(t)
	w.log = func(in *tunnel.Incoming) { serveLog(t, in) }
	_, token := w.authority.Grant(nil)
	end := 100 + len(output)
	for query, want := range map[string]struct{ from, to int }{
		"from=0000000000000007:100":                                           {100, end},
		"from=0000000000000007:0&to=150":                                      {100, 150},
		"from=0000000000000007:50100&to=99999":                                {50100, 99999},
		fmt.Sprintf("from=0000000000000007:%d", end):                          {end, end},
		fmt.Sprintf("from=0000000000000007:50000&to=%d", uint64(1)<<63-1):     {50000, end},
		fmt.Sprintf("from=0000000000000007:%d&to=%d", end-1, uint64(1)<<63-1): {end - 1, end},
	} {
		answer := w.do(http.MethodGet, logPath+"?"+query, token, "")
		expect(t, answer, http.StatusOK)
		if !bytes.Equal(answer.Body.Bytes(), output[want.from-100:want.to-100]) {
			t.Errorf("%s: %d other bytes", query, answer.Body.Len())
		}
		h := answer.Header()
		if got := h.Get(positionHeader); got != fmt.Sprintf("0000000000000007:%d", want.from) {
			t.Errorf("%s: begins at %s, want %d", query, got, want.from)
		}
		if h.Get("Content-Length") != fmt.Sprint(want.to-want.from) || h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", query, h)
		}
	}
}

func TestTheLogRefuses(t *testing.T) {
	w := newWorld(t)
	w.log = func(in *tunnel.Incoming) { serveLog(t, in) }
	for name, c := range map[string]struct {
		target string
		change func(*jws.Grant)
		want   int
	}{
		"without view":     {logPath + "?from=0000000000000007:0", func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapControl} }, 403},
		"another terminal": {logPath + "?from=0000000000000007:0", func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }, 403},
		"no position":      {logPath, nil, 400},
		"half a position":  {logPath + "?from=0000000000000007", nil, 400},
		"to is no offset":  {logPath + "?from=0000000000000007:0&to=x", nil, 400},
		"to is below 0":    {logPath + "?from=0000000000000007:0&to=-1", nil, 400},
		"to before from":   {logPath + "?from=0000000000000007:10&to=9", nil, 400},
		"another epoch":    {logPath + "?from=0000000000000008:0", nil, 404},
	} {
		t.Run(name, func(t *testing.T) {
			_, token := w.authority.Grant(c.change)
			expect(t, w.do(http.MethodGet, c.target, token, ""), c.want, `"error"`)
		})
	}
	_, token := w.authority.Grant(nil)
	w.tunnels.Connect(nil)
	expect(t, w.do(http.MethodGet, logPath+"?from=0000000000000007:0", token, ""), http.StatusServiceUnavailable)
}

// Half a log must not pass for a whole one.
func TestALogThatIsCutShort(t *testing.T) {
	answers := map[string]string{
		"ends early":   `{"from":100,"to":200,"cols":80,"rows":24}`,
		"says too far": `{"from":100,"to":103,"cols":80,"rows":24}`,
	}
	for name, opened := range answers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.log = func(in *tunnel.Incoming) {
				if stream, err := in.Accept(protocol.Opened{Result: []byte(opened)}); err == nil {
					protocol.Write(stream, protocol.Data{Offset: 100, Bytes: []byte("abcde")})
					stream.Close()
				}
			}
			_, token := w.authority.Grant(nil)
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("the answer isn't aborted")
				}
			}()
			w.do(http.MethodGet, logPath+"?from=0000000000000007:100", token, "")
		})
	}
	w := newWorld(t)
	w.log = func(in *tunnel.Incoming) {
		in.Accept(protocol.Opened{Result: []byte(`{"from":5,"to":10,"cols":80,"rows":24}`)})
	}
	_, token := w.authority.Grant(nil)
	expect(t, w.do(http.MethodGet, logPath+"?from=0000000000000007:100", token, ""), http.StatusBadGateway)
}

func TestRecording(t *testing.T) {
	w := newWorld(t)
	w.execute = func(c *jws.Command) protocol.Result {
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: "pty_1", RecordingID: "rec_1"})
	}
	_, token := w.authority.Grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapRecord} })
	const path = "/sessions/ses_1/ptys/pty_1/recording"
	for i, method := range []string{http.MethodPost, http.MethodDelete} {
		op := []string{op.KindRecordStart, op.KindRecordStop}[i]
		expect(t, w.do(method, path, token, "", "Idempotency-Key", op), http.StatusOK, `"recordingId":"rec_1"`, op)
		signed := w.signed[i]
		body, _ := json.Marshal(signed.Op)
		if string(body) != `{"kind":"`+op+`"}` || signed.IdempotencyKey != op ||
			signed.Target != (protocol.CommandTarget{SandboxID: relaytest.Sandbox, SessionID: "ses_1", PTYID: "pty_1"}) {
			t.Errorf("signed %s for %+v", body, signed.Target)
		}
	}
	_, viewer := w.authority.Grant(nil)
	expect(t, w.do(http.MethodPost, path, viewer, ""), http.StatusForbidden, `"error"`)
	expect(t, w.do(http.MethodDelete, path, viewer, ""), http.StatusForbidden, `"error"`)
}

func TestRecordingsComeFromTheSandbox(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	w.http = func(answer http.ResponseWriter, r *http.Request) {
		answer.Header().Set("Content-Type", "application/x-asciicast")
		fmt.Fprint(answer, r.URL.Path)
	}
	for _, path := range []string{"/sessions/ses_1/recordings", "/sessions/ses_1/recordings/rec_1"} {
		answer := w.do(http.MethodGet, path, token, "")
		expect(t, answer, http.StatusOK, path)
		if h := answer.Header(); h.Get("Content-Security-Policy") != "sandbox" || !strings.Contains(h.Get("Content-Type"), "asciicast") {
			t.Errorf("%v", h)
		}
	}
	_, blind := w.authority.Grant(func(g *jws.Grant) { g.Caps = nil })
	expect(t, w.do(http.MethodGet, "/sessions/ses_1/recordings/rec_1", blind, ""), http.StatusForbidden)
}
