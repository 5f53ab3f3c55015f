package console_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// fakeChromium is the sandbox's browser. Guarded by the relay's mu.
type fakeChromium struct {
	status   op.BrowserStatus
	frame    []byte        // the newest picture
	changed  chan struct{} // closed at the next one
	cut      chan struct{} // closed to end the streams
	watchers int           // that are there now
	watched  int           // that ever were
	tabs     []string      // for each of those: which tab, "" for the active one
}

func (f *fakeRelay) registerChromium(mux *http.ServeMux) {
	f.chromium = fakeChromium{status: op.BrowserStatus{State: "stopped"}, changed: make(chan struct{}), cut: make(chan struct{})}
	mux.HandleFunc("GET /sessions/{sid}/browser", f.browserStatus)
	mux.HandleFunc("GET /sessions/{sid}/browser/frames", f.browserFrames)
}

func (f *fakeRelay) browserStatus(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapView); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, 200, f.chromium.status)
}

// browse has the browser show a picture of a page.
func (f *fakeRelay) browse(status op.BrowserStatus, frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.chromium.status, f.chromium.frame = status, frame
	close(f.chromium.changed)
	f.chromium.changed = make(chan struct{})
}

// cutFrames ends the streams of pictures.
func (f *fakeRelay) cutFrames() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.chromium.cut)
	f.chromium.cut = make(chan struct{})
}

func (f *fakeRelay) browserFrames(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapView); !ok {
		return
	}
	f.mu.Lock()
	f.chromium.watchers++
	f.chromium.watched++
	f.chromium.tabs = append(f.chromium.tabs, r.URL.Query().Get("tab"))
	cut := f.chromium.cut
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.chromium.watchers--
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "multipart/x-mixed-replace; boundary=frame")
	fmt.Fprint(w, "--frame\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n\r\n")
	for {
		f.mu.Lock()
		frame, changed := f.chromium.frame, f.chromium.changed
		f.mu.Unlock()
		if frame != nil {
			fmt.Fprintf(w, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n", len(frame), frame)
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// picture is a JPEG picture of something like a page, in one colour.
func picture(width, height int, c color.Color) []byte {
	page := image.NewRGBA(image.Rect(0, 0, width, height))
	fill := func(c color.Color, at image.Rectangle) {
		draw.Draw(page, at, image.NewUniform(c), image.Point{}, draw.Src)
	}
	fill(color.White, page.Bounds())
	fill(c, image.Rect(0, 0, width, height/8))
	for y := height / 5; y < height-20; y += 34 {
		fill(color.Gray{0xd0}, image.Rect(width/10, y, width*(5+y%4)/10, y+14))
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, page, nil); err != nil {
		panic(err)
	}
	return out.Bytes()
}
