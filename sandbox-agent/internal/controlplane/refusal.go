package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
)

// maxRefusal bounds what is read of an answer that says why not, in bytes.
const maxRefusal = 4 << 10

// A Refusal is an error that the control plane itself has answered. It came
// inside TLS, so no relay can have made it.
type Refusal struct{ Said *protocol.Error }

func (e *Refusal) Error() string { return "control plane: " + e.Said.Message }
func (e *Refusal) Unwrap() error { return e.Said }

// Refused reports whether err is the control plane's own answer.
func Refused(err error) bool {
	_, ok := errors.AsType[*Refusal](err)
	return ok
}

// Final reports whether err is the control plane's own answer, and the same
// request would get it again.
func Final(err error) bool {
	if !Refused(err) {
		return false
	}
	switch protocol.KindOf(err) {
	case protocol.KindInternal, protocol.KindUnavailable, protocol.KindRestarting, protocol.KindUpstream, protocol.KindTooMany:
		return false
	}
	return true
}

// RefusedWith returns the refusal that an HTTP status stands for.
func RefusedWith(status int, message string) error {
	if message == "" {
		message = fmt.Sprintf("status %d", status)
	}
	return &Refusal{protocol.Errorf(protocol.KindByStatus(status), "%s", message)}
}

// refusal reads an answer that isn't good.
func refusal(resp *http.Response) error {
	var body struct {
		Error protocol.ErrorBody `json:"error"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil || json.Unmarshal(data, &body) != nil {
		body.Error.Message = ""
	}
	return RefusedWith(resp.StatusCode, body.Error.Message)
}
