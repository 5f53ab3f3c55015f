package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
)

const (
	// defaultFPS and maxFPS bound the frames in a second that one viewer gets.
	defaultFPS, maxFPS = 5, 15
	// frameKeepAlive is the time after which an empty part is sent.
	frameKeepAlive = 15 * time.Second
)

// Browser serves how a session's browser stands and what it shows. All fields
// but KeepAlive must be set.
type Browser struct {
	Grant  func(*http.Request) *jws.Grant // under which a request came, verified
	Status func(context.Context, protocol.SessionID) protocol.BrowserStatus
	Frames func(context.Context, protocol.SessionID) (<-chan browser.Frame, error)

	KeepAlive time.Duration // of frames; 0: 15 s
}

// Register adds the routes to mux.
func (s *Browser) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /sessions/{sid}/browser", s.guarded(s.status))
	mux.HandleFunc("GET /sessions/{sid}/browser/frames", s.guarded(s.frames))
}

// guarded serves under grants that carry "view" for the session.
func (s *Browser) guarded(serve func(http.ResponseWriter, *http.Request, protocol.SessionID) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		session := protocol.SessionID(r.PathValue("sid"))
		if grant := s.Grant(r); grant == nil || !protocol.ValidID(session) || !grant.Allows(session, "", protocol.CapView) {
			reply.Error(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", protocol.CapView))
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if err := serve(w, r, session); err != nil {
			reply.Error(w, err)
		}
	}
}

func (s *Browser) status(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	reply.JSON(w, http.StatusOK, s.Status(r.Context(), session))
	return nil
}

// frames is GET /sessions/{sid}/browser/frames?fps=, an endless multipart
// stream of JPEG pictures: the newest each time, no more than fps in a second.
// While the page doesn't change, or there is no browser, there is an empty part
// of type text/plain now and then.
func (s *Browser) frames(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	fps := defaultFPS
	if text := r.URL.Query().Get("fps"); text != "" {
		var err error
		if fps, err = strconv.Atoi(text); err != nil || fps < 1 || fps > maxFPS {
			return protocol.Errorf(protocol.KindInvalid, "fps: a number from 1 to %d", maxFPS)
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	frames, err := s.Frames(ctx, session)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return nil
	}
	out := frameWriter{w, http.NewResponseController(w)}
	if errors.Join(out.begin(), out.write("text/plain", nil)) != nil {
		return nil // the client is gone
	}
	keepAlive := s.KeepAlive
	if keepAlive == 0 {
		keepAlive = frameKeepAlive
	}
	s.stream(ctx, out, frames, time.Second/time.Duration(fps), keepAlive)
	return nil
}

// stream writes frames, one each interval at most, until there are no more or
// nobody reads.
func (s *Browser) stream(ctx context.Context, out frameWriter, frames <-chan browser.Frame, interval, keepAlive time.Duration) {
	for {
		kind, picture := "text/plain", []byte(nil)
		timer := time.NewTimer(keepAlive)
		select {
		case frame, ok := <-frames:
			if !ok {
				timer.Stop()
				return
			}
			kind, picture = "image/jpeg", frame.JPEG
		case <-timer.C:
		}
		timer.Stop()
		if out.write(kind, picture) != nil {
			return
		}
		pause := time.NewTimer(interval) // meanwhile a newer one may take its place
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// A frameWriter writes the parts of a multipart stream.
type frameWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// begin writes what precedes the first part.
func (f frameWriter) begin() error {
	_, err := io.WriteString(f.w, "--frame\r\n")
	return err
}

// write writes a part, and what tells at once that it is whole.
func (f frameWriter) write(kind string, body []byte) error {
	if _, err := fmt.Fprintf(f.w, "Content-Type: %s\r\nContent-Length: %d\r\n\r\n", kind, len(body)); err != nil {
		return err
	}
	if _, err := f.w.Write(body); err != nil {
		return err
	}
	if _, err := io.WriteString(f.w, "\r\n--frame\r\n"); err != nil {
		return err
	}
	return f.control.Flush()
}
