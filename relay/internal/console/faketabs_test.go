package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
)

// fakeTabs are tabs of people's own browsers, and the streams of commands to
// them. Guarded by the relay's mu.
type fakeTabs struct {
	list    map[string]any
	reports []string // bodies of PUT
	opened  []string // "QUERY LAST-EVENT-ID" of each stream
	events  []string // that all streams get
	changed chan struct{}
	cut     chan struct{}
}

func (f *fakeRelay) registerTabs(mux *http.ServeMux) {
	f.tabs = fakeTabs{list: map[string]any{"tabs": []any{}, "commands": []any{}}, changed: make(chan struct{}), cut: make(chan struct{})}
	mux.HandleFunc("GET /sessions/{sid}/tabs", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := f.may(w, r, protocol.CapView); !ok {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		answer(w, 200, f.tabs.list)
	})
	mux.HandleFunc("PUT /sessions/{sid}/tabs", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := f.may(w, r, protocol.CapMCP); !ok {
			return
		}
		var report json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			f.fault("a report of tabs: %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.tabs.reports = append(f.tabs.reports, string(report))
		answer(w, 200, f.tabs.list)
	})
	mux.HandleFunc("GET /control/stream", f.commandStream)
}

// command sends an event to the streams.
func (f *fakeRelay) command(envelope string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tabs.events = append(f.tabs.events, envelope)
	close(f.tabs.changed)
	f.tabs.changed = make(chan struct{})
}

// cutCommands ends the streams.
func (f *fakeRelay) cutCommands() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.tabs.cut)
	f.tabs.cut = make(chan struct{})
}

func (f *fakeRelay) commandStream(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapMCP); !ok {
		return
	}
	f.mu.Lock()
	f.tabs.opened = append(f.tabs.opened, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
	sent := 0
	fmt.Sscanf(r.Header.Get("Last-Event-ID"), "e-%d", &sent)
	cut := f.tabs.cut
	f.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for {
		f.mu.Lock()
		events, changed := f.tabs.events[sent:], f.tabs.changed
		f.mu.Unlock()
		for _, e := range events {
			sent++
			fmt.Fprintf(w, "id: e-%d\nevent: command\ndata: %s\n\n", sent, e)
		}
		if fmt.Fprint(w, ": \n\n"); out.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}
