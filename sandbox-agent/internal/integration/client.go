package integration

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/protocol"
)

// maxReason bounds how much of an error's text is passed on.
const maxReason = 500

// A Requester sends requests to the control plane.
type Requester interface {
	// Do sends a request signed with the device's key. target is a path with its
	// query. It returns the answer's body and status. An error means that there
	// was no answer.
	Do(ctx context.Context, method, target string, body []byte) ([]byte, int, error)
}

// A Client asks the control plane's gateway.
type Client struct{ Requests Requester }

// A Refusal is the gateway's error answer.
type Refusal struct {
	Status  int    // of the HTTP answer
	Code    string // NOT_ATTACHED, INVALID_REQUEST, …; may be empty
	Message string // one printable line
}

func (r *Refusal) Error() string { return r.Message }

// List returns the integrations attached to a terminal. Its error is a
// *[Refusal] if there was an answer.
func (c Client) List(ctx context.Context, session protocol.SessionID, pty protocol.PTYID) ([]protocol.Integration, error) {
	target := "/internal/terminals/" + url.PathEscape(string(pty)) + "/integrations?session_id=" + url.QueryEscape(string(session))
	var list protocol.IntegrationList
	err := c.ask(ctx, http.MethodGet, target, nil, &list)
	return list.Integrations, err
}

// Execute asks the gateway to run a request. Its error is a *[Refusal] if there
// was an answer.
func (c Client) Execute(ctx context.Context, provider string, req protocol.GatewayRequest) (protocol.GatewayAnswer, error) {
	var answer protocol.GatewayAnswer
	body, err := json.Marshal(req)
	if err != nil {
		return answer, &Refusal{Status: http.StatusBadRequest, Message: "the arguments are not JSON"}
	}
	err = c.ask(ctx, http.MethodPost, "/internal/gateway/"+url.PathEscape(provider)+"/execute", body, &answer)
	return answer, err
}

func (c Client) ask(ctx context.Context, method, target string, body []byte, out any) error {
	data, status, err := c.Requests.Do(ctx, method, target, body)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return refusal(status, data)
	}
	if len(data) > maxAnswer || json.Unmarshal(data, out) != nil {
		return &Refusal{Status: http.StatusBadGateway, Message: "the gateway's answer is not what it should be"}
	}
	return nil
}

// maxAnswer bounds an answer of the gateway: the response and its envelope.
const maxAnswer = protocol.MaxGatewayAnswer + 64<<10

// refusal reads an error body: an object or, as in seed 001, a text.
func refusal(status int, data []byte) *Refusal {
	var body struct {
		Error json.RawMessage `json:"error"`
	}
	var about struct {
		Message string `json:"message"`
		Name    string `json:"name"`
		Code    string `json:"code"`
	}
	if json.Unmarshal(data, &body) == nil && json.Unmarshal(body.Error, &about) != nil {
		about.Message = ""
	}
	message := printable(about.Message)
	if message == "" {
		message = strings.ToLower(or(http.StatusText(status), "the gateway refused"))
	}
	return &Refusal{Status: status, Code: printable(about.Code), Message: message}
}

// printable returns text as one line of bounded length.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

func or(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
