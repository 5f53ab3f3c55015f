package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// defaultKeepAlive is how often a watch without changes sends something.
const defaultKeepAlive = 15 * time.Second

// A watchReady is the data of the event "ready".
type watchReady struct {
	Path    string `json:"path"`
	Partial bool   `json:"partial,omitempty"` // there are more folders than can be watched
}

// A watchOverflow is the data of the event "overflow".
type watchOverflow struct {
	Partial bool `json:"partial,omitempty"` // as of watchReady, by now
}

// watch is GET /sessions/{sid}/files/watch?path=&recursive=, a stream of events:
// "ready" when the folder is watched, "changed" with a protocol.FileChange each,
// "overflow" when the folder must be listed again, also once when it has come to
// hold more folders than can be watched, and "gone", the last, when it is no
// more. While nothing changes there is a comment now and then.
func (s routes) watch(w http.ResponseWriter, r *http.Request, _ toolbox.Caller) error {
	recursive, err := flag(r, "recursive")
	if err != nil {
		return err
	}
	watch, err := s.FS.Watch(folderPath(r), recursive)
	if err != nil {
		return err
	}
	defer watch.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return nil
	}
	events := eventWriter{w, http.NewResponseController(w)}
	if err := events.send("ready", watchReady{Path: watch.Path(), Partial: watch.Partial()}); err != nil {
		return nil // the client is gone
	}
	for err == nil {
		err = s.nextChanges(r.Context(), watch, events)
	}
	if protocol.KindOf(err) == protocol.KindNotFound {
		_ = events.send("gone", struct{}{}) // nothing follows
	}
	return nil
}

// nextChanges sends what changes next, or a comment after a while.
func (s routes) nextChanges(ctx context.Context, watch *workspace.Watch, events eventWriter) error {
	keepAlive := s.KeepAlive
	if keepAlive == 0 {
		keepAlive = defaultKeepAlive
	}
	wait, cancel := context.WithTimeout(ctx, keepAlive)
	defer cancel()
	changes, err := watch.Next(wait)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return events.comment()
	}
	if err != nil {
		return err
	}
	if changes.Overflow {
		if err := events.write("overflow", watchOverflow{Partial: watch.Partial()}); err != nil {
			return err
		}
	}
	for _, change := range changes.List {
		if err := events.write("changed", change); err != nil {
			return err
		}
	}
	return events.flush()
}

// An eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e eventWriter) write(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", event, text)
	return err
}

func (e eventWriter) send(event string, data any) error {
	return errors.Join(e.write(event, data), e.flush())
}

func (e eventWriter) comment() error {
	_, err := fmt.Fprint(e.w, ":\n\n")
	return errors.Join(err, e.flush())
}

func (e eventWriter) flush() error { return e.control.Flush() }
