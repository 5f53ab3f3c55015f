// Package access decides who may open what at the relay: web origins and
// hosts, grants in requests, and the tickets and cookies that open one socket.
package access

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// CookieName is the cookie that opens a terminal socket for clients that can't
// send the ticket (DESIGN §9).
const CookieName = "fairlead_pty"

// Bearer returns the token of the request's Authorization header.
func Bearer(r *http.Request) (string, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > protocol.MaxTokenBytes {
		return "", protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	return token, nil
}

// Grant returns the verified grant that r bears, and its compact form.
func Grant(r *http.Request, keys *jws.Keys) (*jws.Grant, string, error) {
	token, err := Bearer(r)
	if err != nil {
		return nil, "", err
	}
	grant, err := Verified(r, keys, token)
	if err != nil {
		return nil, "", err
	}
	return grant, token, nil
}

// Verified returns the verified grant that r presents otherwise than as a bearer.
func Verified(r *http.Request, keys *jws.Keys, token string) (*jws.Grant, error) {
	grant, err := keys.Grant(r.Context(), token)
	if err == nil {
		err = Current(grant)
	}
	if err != nil {
		return nil, err
	}
	intake.Admitted(r)
	return grant, nil
}

// Current fails if a verified grant has expired by our own clock. The clock
// skew that its verification allows is for sandboxes, whose clocks nobody sets.
func Current(grant *jws.Grant) error {
	if grant.Over(time.Now()) {
		return lifetime.ErrExpired
	}
	return nil
}

// maxBody bounds the body of a REST request, in bytes.
const maxBody = 64 << 10

// ReadJSON decodes r's body, one JSON object without unknown or repeated
// members, into v.
func ReadJSON(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := ReadBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if protocol.UnmarshalStrict(body, v) != nil {
		return protocol.Errorf(protocol.KindInvalid, "the body must be one JSON object of the documented form")
	}
	return nil
}

// ReadBody returns r's body, at most limit bytes.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return body, nil
	}
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, protocol.Errorf(protocol.KindTooLarge, "the body is over %d bytes", limit)
	}
	if known, ok := errors.AsType[*protocol.Error](err); ok { // the body took too long
		return nil, known
	}
	return nil, protocol.Fault(protocol.KindInvalid, err)
}

// WriteError answers with err's status and its JSON form. It doesn't show the
// errors that err wraps.
func WriteError(w http.ResponseWriter, err error) {
	e := protocol.AsError(err)
	answer := map[string]any{"error": e.Body()}
	if e.Kind == protocol.KindUnknown {
		answer["status"] = protocol.StatusUnknown
	}
	WriteJSON(w, e.Kind.Status(), answer)
}

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","name":"InternalError"}}`)
	}
	WriteVerbatim(w, status, body)
}

// WriteVerbatim answers with body, JSON, byte for byte: a signature may cover
// it.
func WriteVerbatim(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}
