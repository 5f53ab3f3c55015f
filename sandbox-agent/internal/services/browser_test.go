package services

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
)

// A browserWorld serves a browser that shows what is put into frames.
type browserWorld struct {
	grant  *jws.Grant
	frames chan browser.Frame
	asked  protocol.SessionID
	mux    *http.ServeMux
}

func newBrowserWorld() *browserWorld {
	w := &browserWorld{
		grant:  &jws.Grant{Session: "ses_1", Caps: mayView, PTYs: []string{jws.AllPTYs}},
		frames: make(chan browser.Frame, 1), mux: http.NewServeMux(),
	}
	s := &Browser{
		Grant: func(*http.Request) *jws.Grant { return w.grant },
		Status: func(_ context.Context, session protocol.SessionID) protocol.BrowserStatus {
			return protocol.BrowserStatus{State: "running", Title: string(session)}
		},
		Frames: func(_ context.Context, session protocol.SessionID) (<-chan browser.Frame, error) {
			w.asked = session
			if w.frames == nil {
				return nil, protocol.Errorf(protocol.KindTooMany, "too many watch")
			}
			return w.frames, nil
		},
	}
	s.Register(w.mux)
	return w
}

func (w *browserWorld) get(path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer
}

// TestBrowserStatus: who may view the session is told, others aren't.
func TestBrowserStatus(t *testing.T) {
	w := newBrowserWorld()
	answer := w.get("/sessions/ses_1/browser")
	var status protocol.BrowserStatus
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil || status.State != "running" || status.Title != "ses_1" {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
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
			w.mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/sessions/ses_1/browser/frames?fps=2", nil).WithContext(ctx))
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
		w.frames <- browser.Frame{JPEG: []byte("1")}
		if kind, text, after := next(); kind != "image/jpeg" || text != "1" || after != 0 {
			t.Errorf("%s %q after %v", kind, text, after)
		}
		synctest.Wait()
		w.frames <- browser.Frame{JPEG: []byte("2")}
		<-w.frames // as who makes them takes one back that came too fast
		w.frames <- browser.Frame{JPEG: []byte("3")}
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
