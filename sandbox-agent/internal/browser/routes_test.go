package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// A browserWorld serves a browser that shows what is put into frames.
type browserWorld struct {
	grant  *jws.Grant
	frames chan Frame
	asked  protocol.SessionID
	status op.BrowserStatus
	mux    *http.ServeMux
}

var mayView = []protocol.Capability{protocol.CapView}

func newBrowserWorld() *browserWorld {
	w := &browserWorld{
		grant:  &jws.Grant{Session: "ses_1", Caps: mayView, PTYs: []string{jws.AllPTYs}},
		frames: make(chan Frame, 1), mux: http.NewServeMux(),
		status: op.BrowserStatus{State: "running"},
	}
	routes{w, maskedSecret}.register(w.mux)
	return w
}

func (w *browserWorld) Status(_ context.Context, session protocol.SessionID) op.BrowserStatus {
	w.asked = session
	return w.status
}

func (w *browserWorld) Frames(_ context.Context, session protocol.SessionID, tab int) (<-chan Frame, error) {
	w.asked = session
	if w.frames == nil {
		return nil, protocol.Errorf(protocol.KindTooMany, "too many watch")
	}
	return w.frames, nil
}

// ServeHTTP serves requests under the grant.
func (w *browserWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mux.ServeHTTP(rw, r.WithContext(route.WithGrant(r.Context(), w.grant)))
}

func (w *browserWorld) get(path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer
}

// TestBrowserStatus: who may view the session is told, others aren't.
func TestBrowserStatus(t *testing.T) {
	w := newBrowserWorld()
	answer := w.get("/sessions/ses_1/browser")
	var status op.BrowserStatus
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || status.State != "running" || w.asked != "ses_1" {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	w.asked = ""
	for _, w.grant = range []*jws.Grant{nil, {Session: "ses_2", Caps: mayView}, {Session: "ses_1"}} {
		for _, path := range []string{"/sessions/ses_1/browser", "/sessions/ses_1/browser/frames"} {
			if answer := w.get(path); answer.Code != http.StatusForbidden {
				t.Errorf("%s under %+v: %d", path, w.grant, answer.Code)
			}
		}
	}
	if w.asked != "" {
		t.Error("somebody without a grant watched")
	}
}

// TestBrowserFramesRefused: a number of frames that isn't one, and a browser
// that nobody else can watch.
func TestBrowserFramesRefused(t *testing.T) {
	w := newBrowserWorld()
	for _, fps := range []string{"0", "16", "-1", "x", "1.5"} {
		if answer := w.get("/sessions/ses_1/browser/frames?fps=" + fps); answer.Code != http.StatusBadRequest {
			t.Errorf("fps %s: %d", fps, answer.Code)
		}
	}
	w.frames = nil
	if answer := w.get("/sessions/ses_1/browser/frames"); answer.Code != protocol.KindTooMany.Status() {
		t.Errorf("%d", answer.Code)
	}
}

// TestBrowserFrames: frames come no faster than asked for, the newest each
// time, and with nothing to show there is an empty part now and then.
func TestBrowserFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBrowserWorld()
		r, out := io.Pipe()
		answer := &pipeRecorder{header: http.Header{}, out: out}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer out.Close()
			w.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/sessions/ses_1/browser/frames?fps=2", nil).WithContext(ctx))
		}()
		body := bufio.NewReader(r)
		if _, err := body.Peek(1); err != nil {
			t.Fatal(err)
		}
		kind, params, err := mime.ParseMediaType(answer.header.Get("Content-Type"))
		if err != nil || kind != "multipart/x-mixed-replace" {
			t.Fatalf("%q: %v", kind, err)
		}
		parts := multipart.NewReader(body, params["boundary"])
		next := func() (string, string, time.Duration) {
			began := time.Now()
			part, err := parts.NextPart()
			if err != nil {
				t.Fatal(err)
			}
			text := make([]byte, 1)
			n, _ := part.Read(text)
			return part.Header.Get("Content-Type"), string(text[:n]), time.Since(began)
		}
		if kind, _, _ := next(); kind != "text/plain" {
			t.Errorf("first %s", kind)
		}
		time.Sleep(time.Second)
		w.frames <- Frame{JPEG: []byte("1")}
		if kind, text, after := next(); kind != "image/jpeg" || text != "1" || after != 0 {
			t.Errorf("%s %q after %v", kind, text, after)
		}
		synctest.Wait()
		w.frames <- Frame{JPEG: []byte("2")}
		<-w.frames // as who makes them takes one back that came too fast
		w.frames <- Frame{JPEG: []byte("3")}
		if kind, text, after := next(); kind != "image/jpeg" || text != "3" || after != 500*time.Millisecond {
			t.Errorf("%s %q after %v", kind, text, after)
		}
		if kind, text, after := next(); kind != "text/plain" || text != "" || after < frameKeepAlive {
			t.Errorf("%s %q after %v", kind, text, after)
		}
		cancel()
		<-done
	})
}

// A pipeRecorder is a ResponseWriter whose body is read while it is written.
type pipeRecorder struct {
	header http.Header
	out    *io.PipeWriter
}

func (p *pipeRecorder) Header() http.Header            { return p.header }
func (p *pipeRecorder) WriteHeader(int)                {}
func (p *pipeRecorder) Write(body []byte) (int, error) { return p.out.Write(body) }
func (p *pipeRecorder) Flush()                         {}

// secret is in a page.
const secret = `sk-very"secret-value`

var maskedSecret = func() *mask.Secrets {
	secrets := &mask.Secrets{}
	if _, err := secrets.Change([]string{secret}); err != nil {
		panic(err)
	}
	return secrets
}()

// A frankBrowser tells what its page holds.
type frankBrowser string

func (b frankBrowser) CDP(context.Context, protocol.SessionID, op.CDPSend) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"value": string(b)})
}

// TestSecretsAreMasked: what pages hold of the sandbox's secrets reaches neither
// who sends commands to the browser nor who asks how it stands.
func TestSecretsAreMasked(t *testing.T) {
	handle := Operations(frankBrowser("it is "+secret+", you know"), maskedSecret)[op.KindCDPSend]
	run, err := handle(&jws.Command{}, &op.CDPSend{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := run(t.Context())
	var page struct{ Value string }
	if err != nil || json.Unmarshal(result.CDP, &page) != nil || !strings.HasPrefix(page.Value, "it is *") || strings.Contains(page.Value, "secret") {
		t.Errorf("%s %v", result.CDP, err)
	}
	w := newBrowserWorld()
	w.status = op.BrowserStatus{State: "running", URL: "http://a/?key=" + secret + "&b", Title: secret + " page", Error: "no " + secret + " here"}
	var s op.BrowserStatus
	if err := json.Unmarshal(w.get("/sessions/ses_1/browser").Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	if all := s.URL + s.Title + s.Error; strings.Contains(all, "secret") || s.State != "running" || !strings.HasSuffix(s.Title, " page") {
		t.Errorf("%+v", s)
	}
}
