package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// An api is the interface of one provider, with the token of one account.
type api struct {
	provider string
	base     string
	nameRoot bool
	client   http.Client
}

func newAPI(c Call) *api {
	a := &api{provider: c.Provider, nameRoot: c.NameRoot, base: strings.TrimSuffix(c.BaseURL, "/")}
	if a.base == "" {
		a.base = DefaultBaseURL(c.Provider)
	}
	if c.Client != nil {
		a.client = *c.Client
	}
	// A redirect would take the token to another host, or the action to another
	// thing than a policy has looked at.
	a.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return a
}

// A request is one to a provider.
type request struct {
	method string
	path   string // escaped, from the root
	query  url.Values
	accept string // empty: JSON
	body   []byte
	typ    string // of body
}

// An answer is a success.
type answer struct {
	header http.Header
	body   []byte
}

// do sends a request and returns its answer, if it is a success.
func (a *api) do(ctx context.Context, r request) (*answer, error) {
	target := a.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, errors.New("the provider's address is wrong")
	}
	a.header(req.Header, r)
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, a.refusal(resp, data)
	case len(data) > MaxAnswer:
		return nil, tooLarge()
	}
	return &answer{resp.Header, data}, nil
}

func (a *api) header(h http.Header, r request) {
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "fairlead")
	if a.provider == GitHub {
		h.Set("Accept", "application/vnd.github+json")
		h.Set("X-GitHub-Api-Version", githubVersion)
	}
	if r.accept != "" {
		h.Set("Accept", r.accept)
	}
	if r.body != nil {
		h.Set("Content-Type", r.typ)
	}
}

// json sends a request, with in as its body unless that is nil, and decodes the
// answer into out unless that is nil.
func (a *api) json(ctx context.Context, r request, in, out any) (http.Header, error) {
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		r.body, r.typ = body, "application/json"
	}
	ans, err := a.do(ctx, r)
	if err != nil {
		return nil, err
	}
	if out == nil {
		return ans.header, nil
	}
	if err := json.Unmarshal(ans.body, out); err != nil {
		return nil, failed("the provider's answer is not what it should be")
	}
	return ans.header, nil
}

// A refusalBody has the members of the error bodies of GitHub and of Google.
type refusalBody struct {
	Message string `json:"message"` // GitHub
	Errors  []any  `json:"errors"`  // GitHub: objects, or texts
	Error   struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		Errors  []struct {
			Reason string `json:"reason"`
		} `json:"errors"`
	} `json:"error"`
}

// refusal says what a provider meant that didn't do what it was asked to.
func (a *api) refusal(resp *http.Response, data []byte) error {
	e := &Error{Code: CodeAPI, Status: resp.StatusCode}
	var body refusalBody
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" {
		if json.Unmarshal(data, &body) != nil {
			body = refusalBody{}
		}
	}
	text := body.Error.Message
	if text == "" {
		text = body.Message + fieldErrors(body.Errors)
	}
	if limited(resp, body) {
		e.Code = CodeLimit
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode <= 399:
		text = "it is somewhere else now"
	case resp.StatusCode == http.StatusUnauthorized:
		text = "the account's authorisation is not valid any more"
	case text == "":
		text = strings.ToLower(http.StatusText(resp.StatusCode))
	}
	e.Message = printable(a.provider + " answered " + strconv.Itoa(resp.StatusCode) + ": " + text)
	return e
}

// fieldErrors are the details of GitHub's validation.
func fieldErrors(errs []any) string {
	var parts []string
	for _, e := range errs {
		switch e := e.(type) {
		case string:
			parts = append(parts, e)
		case map[string]any:
			text, _ := e["message"].(string)
			if text == "" {
				field, _ := e["field"].(string)
				code, _ := e["code"].(string)
				text = strings.TrimSpace(field + " " + code)
			}
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// limited reports whether the answer is about too many requests. Google says so
// by a reason, GitHub by what is left, or by when to come back.
func limited(resp *http.Response, body refusalBody) bool {
	if resp.StatusCode == http.StatusTooManyRequests {
		return true
	}
	if resp.StatusCode != http.StatusForbidden {
		return false
	}
	for _, e := range body.Error.Errors {
		if strings.HasSuffix(strings.ToLower(e.Reason), "ratelimitexceeded") || e.Reason == "quotaExceeded" {
			return true
		}
	}
	return resp.Header.Get("X-RateLimit-Remaining") == "0" || resp.Header.Get("Retry-After") != ""
}

// decode decodes the JSON of an answer.
func decode(data []byte, out any) error {
	if err := json.Unmarshal(data, out); err != nil {
		return failed("the provider's answer is not what it should be")
	}
	return nil
}
