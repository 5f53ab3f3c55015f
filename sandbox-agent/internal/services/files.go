package services

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/workspace"
)

// DefaultMarked are patterns, as of path.Match, for names of files that usually
// hold secrets.
var DefaultMarked = []string{
	".env", ".env.*", "*.pem", "*.key", ".netrc", ".npmrc", ".pypirc", ".git-credentials", "id_rsa", "id_ed25519",
}

const (
	// defaultKeepAlive is how often a watch without changes sends something.
	defaultKeepAlive = 15 * time.Second
	// maxCommandBytes bounds the JSON body of a request.
	maxCommandBytes = 16 << 10
)

// A Masker masks secrets in a stream, as redact.Stream does.
type Masker interface {
	Write(dst, p []byte) []byte
	Flush(dst []byte) []byte
}

// Files serves the workspace, which all sessions of a sandbox share, under
// /sessions/{sid}/. FS and Grant must be set.
//
// A file whose name is marked is served masked to those who may not set secrets,
// see [protocol.CapEnv]. They can't rename it to a name that isn't, either.
type Files struct {
	FS        *workspace.FS
	Grant     func(*http.Request) *jws.Grant // under which a request came, verified
	Redact    func() Masker                  // for one stream; nil: nothing is masked
	Marked    []string                       // nil: DefaultMarked
	KeepAlive time.Duration                  // default: 15 s
	Log       *slog.Logger                   // nil: silent
}

// Register adds the routes to mux.
func (s *Files) Register(mux *http.ServeMux) {
	const session = "/sessions/{sid}"
	for _, route := range []struct {
		pattern    string
		capability protocol.Capability
		handle     func(http.ResponseWriter, *http.Request, *jws.Grant) error
	}{
		{"GET " + session + "/file", protocol.CapFilesRead, s.read}, // and HEAD
		{"PUT " + session + "/file", protocol.CapFilesWrite, s.write},
		{"DELETE " + session + "/file", protocol.CapFilesWrite, s.remove},
		{"GET " + session + "/file/stat", protocol.CapFilesRead, s.stat},
		{"GET " + session + "/files", protocol.CapFilesRead, s.list},
		{"GET " + session + "/files/archive", protocol.CapFilesRead, s.archive},
		{"GET " + session + "/files/watch", protocol.CapFilesRead, s.watch},
		{"POST " + session + "/files/mkdir", protocol.CapFilesWrite, s.mkdir},
		{"POST " + session + "/files/move", protocol.CapFilesWrite, s.move},
		{"POST " + session + "/upload", protocol.CapFilesWrite, s.upload},
		{"POST " + session + "/uploads", protocol.CapFilesWrite, resumable(s.createUpload)},
		{"HEAD " + session + "/uploads/{uid}", protocol.CapFilesWrite, resumable(s.headUpload)},
		{"PATCH " + session + "/uploads/{uid}", protocol.CapFilesWrite, resumable(s.patchUpload)},
		{"DELETE " + session + "/uploads/{uid}", protocol.CapFilesWrite, resumable(s.dropUpload)},
	} {
		mux.HandleFunc(route.pattern, func(w http.ResponseWriter, r *http.Request) {
			grant := s.Grant(r)
			if grant == nil || !grant.Allows(protocol.SessionID(r.PathValue("sid")), "", route.capability) {
				writeError(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", route.capability))
				return
			}
			if err := route.handle(w, r, grant); err != nil {
				s.fail(w, r, err)
			}
		})
	}
}

// fail answers with err. What is our own fault goes to the log.
func (s *Files) fail(w http.ResponseWriter, r *http.Request, err error) {
	if s.Log != nil && protocol.KindOf(err) == protocol.KindInternal {
		cause := err
		if e := protocol.AsError(err); e.Err != nil {
			cause = e.Err
		}
		s.Log.Warn("a request for files failed", "method", r.Method, "route", r.Pattern, "err", cause)
	}
	conditional := r.Header.Get("If-Match") != "" || r.Header.Get("If-None-Match") != ""
	switch {
	case conditional && errors.Is(err, workspace.ErrPrecondition):
		writeStatus(w, http.StatusPreconditionFailed, err)
	case errors.Is(err, workspace.ErrChecksum):
		writeStatus(w, statusChecksum, err)
	default:
		writeError(w, err)
	}
}

// secret reports whether a file of one of the names is masked for grant.
func (s *Files) secret(grant *jws.Grant, r *http.Request, names ...string) bool {
	if grant.Allows(protocol.SessionID(r.PathValue("sid")), "", protocol.CapEnv) {
		return false
	}
	for _, name := range names {
		if s.marked(name) {
			return true
		}
	}
	return false
}

func (s *Files) marked(name string) bool {
	patterns := s.Marked
	if patterns == nil {
		patterns = DefaultMarked
	}
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
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
func folderPath(r *http.Request) string {
	if p := r.URL.Query().Get("path"); p != "" {
		return p
	}
	return "/"
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

func writeError(w http.ResponseWriter, err error) {
	writeStatus(w, protocol.AsError(err).Kind.Status(), err)
}

// writeStatus answers with err under a status that isn't its kind's.
func writeStatus(w http.ResponseWriter, status int, err error) {
	h := w.Header()
	for _, name := range []string{"Content-Disposition", "ETag", "Content-Length"} {
		h.Del(name)
	}
	writeJSON(w, status, map[string]protocol.ErrorBody{"error": protocol.AsError(err).Body()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
