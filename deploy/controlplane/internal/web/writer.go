package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/program/seldom"
	"github.com/fairlead/fairlead/protocol"
)

// answers is what all answers of a [Server] share.
type answers struct {
	// Static after construction.
	revision string
	logger   *slog.Logger
	clock    clock.Clock
	refusals *seldom.Limit[refusal]
}

// A refusal is one sort of refused request. There are no more of them than
// routes times kinds of errors.
type refusal struct {
	route string // a pattern, never what was asked for
	kind  protocol.Kind
}

// A Writer answers one request.
type Writer struct {
	http.ResponseWriter
	answers *answers // static
}

// Unwrap is for [http.ResponseController].
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// JSON answers with v, a JSON object, and adds the member "revision" to it.
func (w *Writer) JSON(status int, v any) error {
	object, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(object) < 2 || object[0] != '{' {
		return fmt.Errorf("an answer is no object: %T", v)
	}
	revision, err := json.Marshal(w.answers.revision)
	if err != nil {
		return err
	}
	object = object[:len(object)-1]
	if len(object) > 1 {
		object = append(object, ',')
	}
	object = append(append(object, `"revision":`...), revision...)
	w.bytes(status, "application/json", append(object, "}\n"...))
	return nil
}

// Document answers with v as JSON and nothing of ours in it.
func (w *Writer) Document(status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.bytes(status, "application/json", append(data, '\n'))
	return nil
}

// Text answers 200 with text of a type.
func (w *Writer) Text(contentType, text string) error {
	w.bytes(http.StatusOK, contentType, []byte(text))
	return nil
}

// None answers 204: there is nothing to say.
func (w *Writer) None() error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (w *Writer) bytes(status int, contentType string, data []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if _, err := w.Write(data); err != nil {
		w.notTaken(err)
	}
}

func (w *Writer) notTaken(err error) {
	w.answers.logger.Debug("an answer was not taken", "error", err)
}

// Page answers a person, rather than a program, with HTML.
func (w *Writer) Page(status int, page *template.Template, data any) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	if err := page.Execute(w, data); err != nil {
		w.notTaken(err)
	}
	return nil
}

// Redirect sends a browser elsewhere without a word about where it was.
func (w *Writer) Redirect(to string) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// RetryAfter tells a client how long to wait, a second at least.
func (w *Writer) RetryAfter(wait time.Duration) {
	seconds := int64((wait + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
}

// An ErrorAnswer is the body of an answer that says why there is no other one.
type ErrorAnswer struct {
	Error  protocol.ErrorBody `json:"error"`
	Status string             `json:"status,omitempty"` // unknown: it may have been done
}

// fail answers with err in the form of its kind.
func (w *Writer) fail(r *http.Request, err error) {
	e := w.Note(r, err)
	answer := ErrorAnswer{Error: e.Body()}
	if e.Kind == protocol.KindUnknown {
		answer.Status = protocol.StatusUnknown
	}
	if err := w.JSON(e.Kind.Status(), answer); err != nil {
		w.answers.logger.Error("error body", "error", err)
	}
}

// Note logs why a request failed, and returns the error as its caller may read
// it: of what is our own fault no more than that it is. Refusals are counted,
// with a line for each sort of them now and then.
func (w *Writer) Note(r *http.Request, err error) *protocol.Error {
	s, e := w.answers, protocol.AsError(err)
	if e.Kind.Status() >= http.StatusInternalServerError && e.Kind != protocol.KindUnsupported {
		s.logger.Error("request failed", "method", r.Method, "route", r.Pattern, "error", e, "cause", e.Err)
		return e
	}
	s.logger.Debug("request refused", "method", r.Method, "route", r.Pattern, "error", e)
	if n := s.refusals.Happened(refusal{r.Pattern, e.Kind}, s.clock.Now()); n > 0 {
		s.logger.Info("requests refused", "route", r.Pattern, "kind", e.Kind, "name", e.Kind.Name(), "count", n)
	}
	return e
}
