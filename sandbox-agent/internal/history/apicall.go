package history

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
)

// An api serves the web client's routes.
type api struct{ *History }

// A call is a request of the web client.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	session protocol.SessionID
	parts   map[string]string // of the path
}

// done is the answer of what has succeeded (seed 002).
func done(data any) any {
	return struct {
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}{true, data}
}

// A fault is a refusal with a code of seed 002.
type fault struct {
	status        int
	code, message string
}

func (f *fault) Error() string { return f.code + ": " + f.message }

var errNoRoute = &fault{http.StatusNotFound, "NOT_FOUND", "Not found."}

func invalidQuery(message string) error {
	return &fault{http.StatusBadRequest, "INVALID_QUERY_PARAMETER", message}
}

// noProject refuses a project that isn't there.
func noProject(id string) error {
	return &fault{http.StatusNotFound, "PROJECT_NOT_FOUND", fmt.Sprintf("Project %q was not found.", id)}
}

// refuse answers with err in the form of seed 002. A fault of a conversation has
// the code of the chat socket.
func refuse(w http.ResponseWriter, err error) {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		e := protocol.AsError(err)
		body := e.Body()
		f = &fault{e.Kind.Status(), strings.ToUpper(e.Kind.String()), body.Message}
		if of, known := chatsocket.ParseFault(e); known {
			f.code, f.message = string(of.Code), of.Text
		}
	}
	for _, name := range []string{"Content-Disposition", "ETag", "Content-Length"} {
		w.Header().Del(name)
	}
	reply.JSON(w, f.status, struct {
		Success bool `json:"success"`
		Error   any  `json:"error"`
	}{false, struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{f.code, f.message}})
}
