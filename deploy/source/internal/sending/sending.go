// Package sending posts sealed envelopes to a sandbox's address, and says when a
// changed set of cookies is worth one.
package sending

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// MaxBody bounds a body as the relay does by default, in bytes.
	MaxBody = 32 << 20
	// answering bounds how long an answer may take: a browser sets a whole envelope in
	// seconds.
	answering    = 2 * time.Minute
	maxAnswer    = 1 << 20
	maxTold      = 300
	maxRedirects = 3
)

// A Refusal is an answer that isn't a 200.
type Refusal struct {
	Status  int
	Message string
	Name    string        // of the kind of error, as the other side has it; "": it has none
	After   time.Duration // when it is worth another try, if the answer says so
}

// Error implements error.
func (r *Refusal) Error() string {
	switch r.Status {
	case http.StatusNotFound:
		return "the sandbox knows no such pairing: it was ended there (fairlead-source unpair, then pair)"
	case http.StatusUnauthorized:
		return "the sandbox can't open what was sent: the keys differ (fairlead-source unpair, then pair)"
	case http.StatusConflict:
		return "the sandbox has had a later push of this computer: is its clock behind, or the configuration an old copy?"
	case http.StatusServiceUnavailable:
		return "the sandbox isn't connected"
	}
	return fmt.Sprintf("the sandbox refused the push: status %d: %s", r.Status, r.Message)
}

// Passing reports whether an error may be gone on another try.
func Passing(err error) bool {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Status >= 500 || refusal.Status == http.StatusTooManyRequests
	}
	_, here := errors.AsType[*later](err)
	return here || errors.Is(err, errUnsent)
}

// Later marks an error of this computer's as one that may be gone on another try.
func Later(err error) error { return &later{err} }

type later struct{ error }

func (l *later) Unwrap() error { return l.error }

// After returns how long an error asks to wait, or 0.
func After(err error) time.Duration {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.After
	}
	return 0
}

var errUnsent = errors.New("the relay can't be reached")

// A Sender sends to one address.
type Sender struct {
	URL      string
	Hostname string
	Key      *seal.Key
	HTTP     *http.Client // its CheckRedirect is ours; see Client
}

// Client returns a client that follows a relay's word that another one has the
// sandbox, but not out of TLS.
func Client() *http.Client {
	return &http.Client{Timeout: answering, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("too many redirects")
		}
		if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
			return errors.New("a redirect out of TLS")
		}
		return nil
	}}
}

// Send posts the cookies with a sequence, which must be greater than any before. With
// complete the sandbox lets go what isn't among them. Send fails with a *Refusal, or
// where nothing was answered.
func (s *Sender) Send(ctx context.Context, sequence int64, cookies []seal.Cookie, complete bool) (op.SyncAnswer, error) {
	if cookies == nil {
		cookies = []seal.Cookie{} // null isn't a set
	}
	plain, err := seal.Envelope{Version: seal.Version, SourceHostname: s.Hostname, Sequence: sequence, Cookies: cookies, Complete: complete}.Encode()
	if err != nil {
		return op.SyncAnswer{}, err
	}
	if len(plain)+seal.Overhead > MaxBody {
		return op.SyncAnswer{}, fmt.Errorf("the cookies have %d MiB, and %d may be sent: leave sites out (fairlead-source accounts)", len(plain)>>20, MaxBody>>20)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, bytes.NewReader(s.Key.Seal(plain)))
	if err != nil {
		return op.SyncAnswer{}, errors.New("sink.url in source.yaml isn't an address")
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := s.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return op.SyncAnswer{}, ctx.Err()
		}
		return op.SyncAnswer{}, fmt.Errorf("%w: %s", errUnsent, withoutURL(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		message, name := told(data)
		return op.SyncAnswer{}, &Refusal{resp.StatusCode, message, name, retryAfter(resp)}
	}
	var answer op.SyncAnswer
	if err != nil || json.Unmarshal(data, &answer) != nil {
		return op.SyncAnswer{}, errors.New("the sandbox took the push, and its answer can't be read")
	}
	return answer, nil
}

// withoutURL is what went wrong with a request, without its address: who has that may
// push.
func withoutURL(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		return inner.Error()
	}
	return "no answer"
}

// told returns what an error's body says, and what kind of error it names.
func told(data []byte) (message, name string) {
	var body struct {
		Error protocol.ErrorBody `json:"error"`
	}
	if json.Unmarshal(data, &body) == nil && body.Error.Message != "" {
		return short(body.Error.Message), short(body.Error.Name)
	}
	return short(string(data)), ""
}

// short is so much of a text as is shown.
func short(text string) string {
	text = strings.TrimSpace(text)
	return strings.ToValidUTF8(text[:min(len(text), maxTold)], "")
}

func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
