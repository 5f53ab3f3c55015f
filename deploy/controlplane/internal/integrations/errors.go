package integrations

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// The codes that tell a program why the gateway did nothing.
const (
	codeInvalid     = "INVALID_REQUEST"
	codeNotAttached = "NOT_ATTACHED"
	codeDenied      = "POLICY_DENIED" // to a person who may not use tools; a policy's own denial is an answer
	codeLimit       = "RATE_LIMITED"
	codeAPI         = "API_ERROR"
	codeTimeout     = "TIMEOUT"
)

// A codedError is an error of the gateway with its code.
type codedError struct {
	code string
	err  *protocol.Error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

func codedErrorf(code string, kind protocol.Kind, format string, args ...any) error {
	return &codedError{code, protocol.Errorf(kind, format, args...)}
}

// codeOf returns the code of an error that has none of its own.
func codeOf(kind protocol.Kind) string {
	switch kind {
	case protocol.KindInvalid, protocol.KindTooLarge, protocol.KindUnsupported, protocol.KindConflict:
		return codeInvalid
	case protocol.KindTooMany:
		return codeLimit
	case protocol.KindUpstream:
		return codeAPI
	}
	return ""
}

// coded has the errors of a route answered with their codes.
func coded(serve web.Handler) web.Handler {
	return func(w *web.Writer, r *http.Request) error {
		err := serve(w, r)
		if err == nil {
			return nil
		}
		e := w.Note(r, err)
		answer := struct {
			Error struct {
				protocol.ErrorBody
				Code string `json:"code,omitempty"`
			} `json:"error"`
		}{}
		answer.Error.ErrorBody, answer.Error.Code = e.Body(), codeOf(e.Kind)
		if with, ok := errors.AsType[*codedError](err); ok {
			answer.Error.Code = with.code
		}
		status := e.Kind.Status()
		if answer.Error.Code == codeTimeout {
			status = http.StatusGatewayTimeout
		}
		return w.JSON(status, answer)
	}
}

// upstreamError gives an error of the provider's package its code, and masks
// tokens in it.
func upstreamError(err error, secrets []string) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		return err
	}
	kinds := map[string]protocol.Kind{
		provider.CodeInvalid: protocol.KindInvalid, provider.CodeLimit: protocol.KindTooMany,
		provider.CodeAPI: protocol.KindUpstream, provider.CodeTimeout: protocol.KindUpstream,
	}
	return codedErrorf(e.Code, kinds[e.Code], "%s", provider.Cut(string(mask([]byte(e.Message), secrets))))
}

// masked stands where a provider echoed a token.
const masked = "[token]"

// mask replaces secrets in text, as they are and as JSON and URLs spell them.
func mask(text []byte, secrets []string) []byte {
	for _, secret := range secrets {
		spellings := []string{secret, url.QueryEscape(secret), url.PathEscape(secret)}
		if quoted, err := json.Marshal(secret); err == nil {
			spellings = append(spellings, string(quoted[1:len(quoted)-1]))
		}
		for _, spelling := range spellings {
			text = bytes.ReplaceAll(text, []byte(spelling), []byte(masked))
		}
	}
	return text
}
