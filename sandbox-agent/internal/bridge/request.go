package bridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// What can become of a request that the server hasn't taken in, so that it may be
// sent again.
var (
	errAway      = errors.New("the agent is not there")
	errUnknown   = errors.New("the session has ended")
	errForbidden = errors.New("the agent refuses this terminal's secret")
)

// What can become of one that it may have taken in.
var (
	errBroken  = errors.New("the connection to the agent broke; what was asked may have been done")
	errLeaving = errors.New("the bridge has ended; what was asked may have been done")
	errGarbage = errors.New("the agent's answer makes no sense")
)

// maxRefusal bounds what is read of an answer that refuses.
const maxRefusal = 16 << 10

// A refused is the server's answer to what it didn't do.
type refused struct {
	status int
	text   string          // in its words; may be empty
	fault  json.RawMessage // a JSON-RPC error, if it was one
}

func (r *refused) Error() string {
	text := fmt.Sprintf("the agent refused it with status %d", r.status)
	if r.text != "" {
		text += ": " + r.text
	}
	return text
}

// A dialFunc makes connections as [net.Dialer.DialContext] does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newClient returns a client that keeps no connection: so none is used at whose
// other end nobody may be left, which would leave open what became of a call.
func newClient(dial dialFunc) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	}
	return &http.Client{
		Transport: &http.Transport{ // no proxy: the terminal's would lead into the sandbox's egress
			DialContext:            dial,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request sends m, or nothing, in the session s, as try does but once.
func (b *bridge) request(ctx context.Context, method string, s *session, m *message, after string) (*http.Response, error) {
	return b.requestAs(ctx, b.credential(), method, s, m, after)
}

func (b *bridge) requestAs(ctx context.Context, c protocol.MCPCredentials, method string, s *session, m *message, after string) (*http.Response, error) {
	var body io.Reader
	if m != nil && len(m.raw) > protocol.MaxMCPBody { // its answer might be lost in the reset of the connection
		return nil, &refused{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("over %d bytes", protocol.MaxMCPBody)}
	}
	if m != nil {
		body = bytes.NewReader(m.raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, endpoint(c), body)
	if err != nil {
		return nil, err
	}
	h := r.Header
	h.Set(protocol.MCPSecretHeader, c.Secret)
	if toolbox.ParseTab(b.tab) != 0 {
		h.Set(toolbox.TabHeader, b.tab)
	}
	h.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		h.Set("Accept", "text/event-stream")
	}
	if m != nil {
		h.Set("Content-Type", "application/json")
	}
	if after != "" {
		h.Set("Last-Event-ID", after)
	}
	s.mark(h, m)
	response, err := b.client.Do(r)
	var dial *net.OpError
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &dial) && dial.Op == "dial":
		return nil, errAway
	default:
		return nil, errBroken
	}
}

// try sends m, or nothing, in the session s and returns the answer, of whatever
// status. When the agent isn't there or refuses the secret, the file may know
// better: with other credentials it is tried at once again. The error may be
// errAway, errUnknown or errForbidden: then nothing was taken in.
func (b *bridge) try(ctx context.Context, method string, s *session, m *message, after string) (*http.Response, error) {
	for attempt := 0; ; attempt++ {
		c := b.credential()
		r, err := b.requestAs(ctx, c, method, s, m, after)
		switch {
		case err == nil && r.StatusCode == http.StatusNotFound && r.Request.Header.Get("Mcp-Session-Id") != "":
			err = errUnknown
		case err == nil && r.StatusCode == http.StatusForbidden:
			err = errForbidden
		case err == nil:
			return r, nil
		}
		if r != nil {
			r.Body.Close()
		}
		again := errors.Is(err, errAway) || errors.Is(err, errForbidden)
		if !again || attempt > 0 || !b.reread(c) {
			return nil, err
		}
	}
}

// refusal reads why r refuses, and closes it.
func refusal(r *http.Response) *refused {
	defer r.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(r.Body, maxRefusal))
	e := &refused{status: r.StatusCode}
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	var inner struct {
		Code    *int   `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &body) != nil {
		first, _, _ := strings.Cut(string(text), "\n")
		if len(first) <= 256 && utf8.ValidString(first) {
			e.text = strings.TrimSpace(first)
		}
		return e
	}
	e.text = body.Message
	if json.Unmarshal(body.Error, &inner) == nil {
		e.text = inner.Message
		if inner.Code != nil {
			e.fault = body.Error
		}
	}
	return e
}

// messages calls each with what r says until it returns true, and closes r. It
// fails when r ends before that, and keeps at where a stream is.
func (b *bridge) messages(r *http.Response, at *cursor, seen func(), each func(*message) (done bool)) error {
	defer r.Body.Close()
	take := func(data []byte) bool {
		m, err := parse(bytes.TrimSpace(data))
		if err != nil {
			b.log.Warn("the server said what is no message", "bytes", len(data))
			return false
		}
		return each(m)
	}
	body := &noticed{from: r.Body, seen: seen}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		return readEvents(body, b.limits.line, at, take)
	}
	text, err := io.ReadAll(io.LimitReader(body, int64(b.limits.line)+1))
	if err != nil {
		return err
	}
	if len(text) > b.limits.line {
		return errEventTooLong
	}
	if !take(text) {
		return errGarbage
	}
	return nil
}

// A noticed tells of each read that brought something.
type noticed struct {
	from io.Reader
	seen func()
}

func (n *noticed) Read(p []byte) (int, error) {
	k, err := n.from.Read(p)
	if k > 0 {
		n.seen()
	}
	return k, err
}

// mark sets the headers that say to which session m belongs, or, if it says its
// version itself, to none.
func (s *session) mark(h http.Header, m *message) {
	if m != nil && m.version != "" {
		h.Set("Mcp-Protocol-Version", m.version)
		h.Set("Mcp-Method", m.method)
		if name := m.subject(); name != "" {
			h.Set("Mcp-Name", headerValue(name))
		}
		return
	}
	if s.id != "" {
		h.Set("Mcp-Session-Id", s.id)
	}
	if s.version != "" {
		h.Set("Mcp-Protocol-Version", s.version)
	}
}

// subject returns what m is about in the header of newer versions.
func (m *message) subject() string {
	switch m.method {
	case "tools/call", "prompts/get":
		return m.word("name")
	case "resources/read":
		return m.word("uri")
	}
	return ""
}

// headerValue spells text so that a header can carry it.
func headerValue(text string) string {
	for _, c := range []byte(text) {
		if c < 0x21 || c > 0x7e {
			return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
		}
	}
	return text
}
