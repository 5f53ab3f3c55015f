package console_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
)

// fakePlugins are the plugins of the fake relay's sandbox, whose pages are served
// below a host of their own.
type fakePlugins struct {
	pages *httptest.Server

	// Guarded by fakeRelay.mu.
	list     []pluginsocket.Info
	previews int   // that were opened
	renewed  []int // ports whose preview was renewed
	broken   bool  // no preview can be opened
}

// registerPlugins returns the origin of previews.
func (f *fakeRelay) registerPlugins(t testing.TB, mux *http.ServeMux) string {
	f.plugins.pages = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "frame-ancestors "+f.URL)
		fmt.Fprintf(w, `<title>page</title><body style="font: 20px sans-serif">This is the page behind %s<script>
			parent.postMessage("top is "+(() => { try { return top.document.title } catch { return "out of reach" } })(), "*")</script>`, r.URL.Query().Get("port"))
	}))
	t.Cleanup(f.plugins.pages.Close)
	mux.HandleFunc("GET /sessions/{sid}/plugins", f.listPlugins)
	mux.HandleFunc("POST /sessions/{sid}/previews", f.openPreview)
	return "http://preview.localhost:" + f.pagesPort()
}

func (f *fakeRelay) pagesPort() string {
	_, port, _ := net.SplitHostPort(f.plugins.pages.Listener.Addr().String())
	return port
}

// plug changes which plugins there are, and says that to everybody.
func (f *fakeRelay) plug(list ...pluginsocket.Info) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plugins.list = list
	for _, p := range f.ptys {
		p.broadcast(protocol.ListChanged{})
	}
}

func (f *fakeRelay) listPlugins(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapPlugins); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, http.StatusOK, pluginsocket.List{Plugins: f.plugins.list})
}

func (f *fakeRelay) openPreview(w http.ResponseWriter, r *http.Request) {
	u, ok := f.user(w, r, true)
	if !ok {
		return
	}
	if !slices.Contains(u.caps, protocol.CapPlugins) {
		refuse(w, protocol.KindForbidden)
		return
	}
	var body struct {
		Port int
		ID   string
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		refuse(w, protocol.KindInvalid)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.plugins.broken {
		refuse(w, protocol.KindUnavailable)
		return
	}
	if body.ID != "" {
		f.plugins.renewed = append(f.plugins.renewed, body.Port)
	} else {
		f.plugins.previews++
		body.ID = fmt.Sprint("p", f.plugins.previews)
	}
	answer(w, http.StatusOK, map[string]string{"id": body.ID, "url": fmt.Sprintf("http://%s.preview.localhost:%s/?port=%d", body.ID, f.pagesPort(), body.Port)})
}
