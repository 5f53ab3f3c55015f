package files

import (
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/files/workspace"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// maxCommandBytes bounds the JSON body of a request.
const maxCommandBytes = 16 << 10

// statusChecksum is tus' status for a checksum that doesn't match.
const statusChecksum = 460

// routes are the HTTP routes of Files, under /sessions/{sid}/.
type routes struct{ *Files }

// A handler answers a request of caller, whose grant isn't nil. It returns the
// error that is the answer.
type handler func(w http.ResponseWriter, r *http.Request, caller toolbox.Caller) error

// log returns where the routes write what went wrong.
func (s routes) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

// fail answers with err, and logs it when it is the agent's own fault.
func (s routes) fail(w http.ResponseWriter, r *http.Request, err error) {
	if protocol.KindOf(err) == protocol.KindInternal {
		cause := err
		if e := protocol.AsError(err); e.Err != nil {
			cause = e.Err
		}
		s.log().Warn("a request for files failed", "method", r.Method, "route", r.Pattern, "err", cause)
	}
	conditional := r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
	switch {
	case conditional && errors.Is(err, workspace.ErrPrecondition):
		reply.ErrorAs(w, http.StatusPreconditionFailed, err)
	case errors.Is(err, workspace.ErrChecksum):
		reply.ErrorAs(w, statusChecksum, err)
	default:
		reply.Error(w, err)
	}
}

// flag returns a boolean of the query.
func flag(r *http.Request, name string) (bool, error) {
	switch r.URL.Query().Get(name) {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, protocol.Errorf(protocol.KindInvalid, "%s is neither true nor false", name)
}

// folderPath returns the query's path of a folder, the workspace by default.
func folderPath(r *http.Request) string { return orTop(r.URL.Query().Get("path")) }

// orTop returns the path of a folder, that of the workspace itself for "".
func orTop(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// readCommand decodes r's JSON body.
func readCommand(r *http.Request, v any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCommandBytes+1))
	if err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the body ended early")
	}
	if len(body) > maxCommandBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the body is over %d bytes", maxCommandBytes)
	}
	if err := protocol.UnmarshalStrict(body, v); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "the body: %w", err)
	}
	return nil
}

// asDownload marks the answer as a file named name, which no browser shows.
func asDownload(w http.ResponseWriter, kind, name string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", disposition(name))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "private, no-cache")
}

func disposition(name string) string {
	if d := mime.FormatMediaType("attachment", map[string]string{"filename": name}); d != "" {
		return d
	}
	return "attachment"
}
