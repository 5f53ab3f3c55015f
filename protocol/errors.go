package protocol

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind classifies an [Error]. One table, [Kinds], maps it to every external
// form of a failure.
type Kind uint8

// The zero Kind is KindInternal: an unclassified failure is ours. The numbers
// are sent as QUIC error codes, so new kinds go to the end.
const (
	KindInternal        Kind = iota // a fault on our side
	KindInvalid                     // the request is malformed
	KindUnauthenticated             // no credential, or one that isn't valid
	KindExpired                     // a credential or command past its time
	KindForbidden                   // authenticated, but not allowed to do this
	KindNotFound                    // the thing addressed doesn't exist
	KindMethod                      // the route exists, the method doesn't
	KindConflict                    // the thing exists already or has changed
	KindEnded                       // the terminal or session is over for good
	KindSuperseded                  // a newer connection took this one's place
	KindTooLarge                    // over a size limit
	KindTooMany                     // over a rate or count limit
	KindUnsupported                 // a version or operation we don't know
	KindUpstream                    // the other side of a proxy failed
	KindUnavailable                 // can't be done now, may work later
	KindRestarting                  // this relay is going away, come back
	KindNoSpace                     // the disk is full; what was there is as it was
	KindUnknown                     // it may have been done: ask by the same Idempotency-Key
	kindCount
)

// A KindRow holds the external forms of one Kind.
type KindRow struct {
	Kind   Kind
	Label  string // how the kind is spelled in REFUSED, GOAWAY and logs
	Status int    // HTTP status
	Close  int    // WebSocket close code
	Name   string // error name of seed 003
	Text   string // what a caller reads when nothing more may be said
}

// Kinds is the one table of errors, ordered by Kind.
var Kinds = [...]KindRow{
	{KindInternal, "internal", http.StatusInternalServerError, 1011, "InternalError", "internal error"},
	{KindInvalid, "invalid", http.StatusBadRequest, 4400, "RequestError", "invalid request"},
	{KindUnauthenticated, "unauthenticated", http.StatusUnauthorized, 4401, "AuthError", "not authenticated"},
	{KindExpired, "expired", http.StatusUnauthorized, 4401, "ExpiredError", "expired"},
	{KindForbidden, "forbidden", http.StatusForbidden, 4403, "AuthError", "forbidden"},
	{KindNotFound, "not_found", http.StatusNotFound, 4404, "TargetError", "not found"},
	{KindMethod, "method", http.StatusMethodNotAllowed, 4400, "RequestError", "method not allowed"},
	{KindConflict, "conflict", http.StatusConflict, 4400, "RequestError", "conflict"},
	{KindEnded, "ended", http.StatusGone, 4004, "TargetError", "session ended"},
	{KindSuperseded, "superseded", http.StatusConflict, 4409, "TargetError", "superseded"},
	{KindTooLarge, "too_large", http.StatusRequestEntityTooLarge, 1009, "LimitError", "too large"},
	{KindTooMany, "too_many", http.StatusTooManyRequests, 4429, "LimitError", "too many requests"},
	{KindUnsupported, "unsupported", http.StatusNotImplemented, 4400, "UnsupportedError", "unsupported"},
	{KindUpstream, "upstream", http.StatusBadGateway, 4502, "InternalError", "upstream failed"},
	{KindUnavailable, "unavailable", http.StatusServiceUnavailable, 1013, "InternalError", "try again later"},
	{KindRestarting, "restarting", http.StatusServiceUnavailable, 1012, "InternalError", "restarting"},
	{KindNoSpace, "no_space", http.StatusInsufficientStorage, 1013, "LimitError", "no space left"},
	{KindUnknown, "unknown", http.StatusBadGateway, 4502, "InternalError", "it isn't known whether this was done"},
}

func (k Kind) row() KindRow {
	if k >= kindCount {
		k = KindInternal
	}
	return Kinds[k]
}

func (k Kind) String() string { return k.row().Label }

// Status returns the HTTP status of k.
func (k Kind) Status() int { return k.row().Status }

// CloseCode returns the WebSocket close code of k.
func (k Kind) CloseCode() int { return k.row().Close }

// Name returns the error name of k (seed 003: {message, name}).
func (k Kind) Name() string { return k.row().Name }

// Text returns the fixed text of k, which reveals nothing but the kind.
func (k Kind) Text() string { return k.row().Text }

// MarshalText and UnmarshalText spell a Kind by its label; an unknown label
// decodes as KindInternal, so that a newer peer's kinds stay errors.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.row().Label), nil }

func (k *Kind) UnmarshalText(text []byte) error {
	*k = KindInternal
	for _, row := range Kinds {
		if row.Label == string(text) {
			*k = row.Kind
		}
	}
	return nil
}

// An Error is a failure with a kind. Message may be shown to the caller and
// never holds a secret; Err is for our own log only.
type Error struct {
	Kind    Kind
	Message string
	Err     error
}

// Errorf returns an Error of kind k. A %w verb sets Err, whose text then is
// part of Message: wrap only what the caller may read.
func Errorf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Fault returns an Error of kind k that shows only the kind's own text and
// keeps err for the log.
func Fault(k Kind, err error) *Error { return &Error{Kind: k, Message: k.Text(), Err: err} }

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Kind.Text()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// AsError returns the *Error in err's chain, or an internal Fault around err.
// It returns nil for a nil err.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Fault(KindInternal, err)
}

// KindOf returns the kind of err, KindInternal when it has none or is nil.
func KindOf(err error) Kind {
	if e := AsError(err); e != nil {
		return e.Kind
	}
	return KindInternal
}

// An ErrorBody is the JSON form of an error in REST answers and callbacks.
type ErrorBody struct {
	Message string `json:"message"`
	Name    string `json:"name,omitempty"`
}

// Body returns the JSON form of e.
func (e *Error) Body() ErrorBody { return ErrorBody{Message: e.Error(), Name: e.Kind.Name()} }

// KindByName returns the kind for an error name of seed 003, for answers that
// carry only the name.
func KindByName(name string) Kind {
	switch name {
	case "AuthError":
		return KindForbidden
	case "ExpiredError":
		return KindExpired
	case "TargetError":
		return KindNotFound
	case "RequestError":
		return KindInvalid
	case "UnsupportedError":
		return KindUnsupported
	case "LimitError":
		return KindTooMany
	}
	return KindInternal
}

// KindByStatus returns the first kind with an HTTP status, for answers that
// carry only the status.
func KindByStatus(status int) Kind {
	for _, row := range Kinds {
		if row.Status == status {
			return row.Kind
		}
	}
	return KindInternal
}
