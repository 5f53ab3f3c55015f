package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// The codes of an [Error].
const (
	CodeInvalid = "INVALID_REQUEST" // the arguments are wrong
	CodeLimit   = "RATE_LIMITED"    // the provider wants fewer requests
	CodeAPI     = "API_ERROR"       // the provider refused, or can't be understood
	CodeTimeout = "TIMEOUT"         // it didn't answer in time
)

// maxMessage bounds what is passed on of a provider's own words.
const maxMessage = 300

// An Error says why an action failed. Message holds the provider's own words,
// made printable: it may echo what was sent to it, so its reader masks the token
// and only then cuts it, see [Cut].
type Error struct {
	Code    string
	Status  int // of the provider's answer; 0: there was none
	Message string
}

func (e *Error) Error() string { return e.Message }

func invalid(format string, args ...any) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

func failed(format string, args ...any) error {
	return &Error{Code: CodeAPI, Message: fmt.Sprintf(format, args...)}
}

func tooLarge() error {
	return failed("the answer is larger than %d bytes: ask for less", MaxAnswer)
}

// asError returns err as an *Error. What isn't one comes from the connection,
// whose words may name hosts of ours: they stay here.
func asError(ctx context.Context, err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Code: CodeTimeout, Message: "the provider did not answer in time"}
	case errors.Is(err, context.Canceled):
		return &Error{Code: CodeTimeout, Message: "the request was given up"}
	}
	return &Error{Code: CodeAPI, Message: "the provider can't be reached"}
}

// words returns text as one printable line of bounded length.
func words(text string) string { return Cut(printable(text)) }

// printable returns text of others as one printable line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Cut returns text at a length that can be passed on. What is to be masked in it
// has been: part of a token can't be told from other text.
func Cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}
