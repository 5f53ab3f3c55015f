package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

const (
	// defaultFPS and maxFPS limit the frames per second for one viewer.
	defaultFPS, maxFPS = 5, 15
	// frameKeepAlive is the time after which an empty part is sent.
	frameKeepAlive = 15 * time.Second
)

// A watched is what people see of a session's browser. [Browser] is one.
type watched interface {
	Status(context.Context, protocol.SessionID) op.BrowserStatus
	Frames(ctx context.Context, session protocol.SessionID, tab int) (<-chan Frame, error)
}

// routes serve a session's browser status and pictures.
type routes struct {
	browser watched
	secrets *mask.Secrets
}

// Routes serves a session's browser status and pictures.
func (b *Browser) Routes(mux *http.ServeMux) { routes{b, b.opts.Secrets}.register(mux) }

func (s routes) register(mux *http.ServeMux) {
	route.Get(mux, "browser", protocol.CapView, s.status)
	route.Get(mux, "browser/frames", protocol.CapView, s.frames)
}

// status is GET /sessions/{sid}/browser, masked.
func (s routes) status(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	status := s.browser.Status(r.Context(), session)
	texts := []*string{&status.URL, &status.Title, &status.Error}
	for i := range status.Tabs {
		texts = append(texts, &status.Tabs[i].URL, &status.Tabs[i].Title)
	}
	for _, text := range texts {
		*text = string(s.secrets.Mask([]byte(*text)))
	}
	reply.JSON(w, http.StatusOK, status)
	return nil
}

// frames is GET /sessions/{sid}/browser/frames?fps=&tab=, an endless multipart
// stream of JPEG pictures of a tab, or of whichever is active: the newest each time, at most fps per second. While
// the page doesn't change, or there is no browser, it sends an empty text/plain
// part now and then.
func (s routes) frames(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
	fps, err := number(r, "fps", defaultFPS, maxFPS)
	if err != nil {
		return err
	}
	tab, err := number(r, "tab", 0, math.MaxInt32)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	frames, err := s.browser.Frames(ctx, session, tab)
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
	out.stream(ctx, frames, time.Second/time.Duration(fps))
	return nil
}

// number returns a query parameter from 1 to most.
func number(r *http.Request, name string, absent, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, protocol.Errorf(protocol.KindInvalid, "%s: a number from 1 to %d", name, most)
	}
	return n, nil
}

// stream writes frames, at most one per interval, until there are no more or
// nobody reads.
func (f frameWriter) stream(ctx context.Context, frames <-chan Frame, interval time.Duration) {
	for {
		kind, picture := "text/plain", []byte(nil)
		timer := time.NewTimer(frameKeepAlive)
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
		if f.write(kind, picture) != nil {
			return
		}
		pause := time.NewTimer(interval) // meanwhile a newer one may replace it
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

// write writes a part and its end, so that it is complete at once.
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
