package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	asking    = time.Minute
	maxAnswer = 4 << 20
)

// A controlPlane is the person's. What is asked of it goes to its own address: a relay
// between could put a key of its own in the sandbox's place.
type controlPlane struct {
	base, token string
	http        *http.Client
}

func newControlPlane(base, token string) *controlPlane {
	return &controlPlane{base, token, &http.Client{Timeout: asking, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the control plane redirects: give its own address")
	}}}
}

// origin returns an address as scheme and host. Without TLS it must be this machine:
// a token travels to it.
func origin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "", protocol.Errorf(protocol.KindInvalid, "the control plane's address is like https://control.example.com")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return "", protocol.Errorf(protocol.KindInvalid, "the control plane's address needs https:// (your token travels to it)")
	}
	return u.Scheme + "://" + u.Host, nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// call makes a request.
func (p *controlPlane) call(ctx context.Context, method, address string, bearer string, body, out any) error {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return fmt.Errorf("%s can't be reached: %w", req.URL.Host, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var said struct {
			Error protocol.ErrorBody `json:"error"`
		}
		if json.Unmarshal(data, &said) == nil && said.Error.Message != "" {
			return &answered{resp.StatusCode, said.Error.Message, said.Error.Name}
		}
		return &answered{status: resp.StatusCode, message: "status " + resp.Status}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s answers something else than expected", req.URL.Host)
	}
	return nil
}

// A me is what /auth/me answers.
type me struct {
	User struct {
		Name string `json:"name"`
	} `json:"user"`
	Sessions []session `json:"sessions"`
}

type session struct {
	ID           protocol.SessionID    `json:"id"`
	Dashboard    string                `json:"dashboard"`
	Capabilities []protocol.Capability `json:"capabilities"`
}

func (p *controlPlane) me(ctx context.Context) (m me, err error) {
	return m, p.call(ctx, http.MethodGet, p.base+"/auth/me", p.token, nil, &m)
}

// run has a session's sandbox do something, and returns what came of it.
func (p *controlPlane) run(ctx context.Context, id protocol.SessionID, kind string, body op.Body) (protocol.OpResult, error) {
	var answer struct {
		Result *protocol.OpResult  `json:"result"`
		Error  *protocol.ErrorBody `json:"error"`
	}
	if err := body.Check(); err != nil { // what is wrong needn't travel
		return protocol.OpResult{}, err
	}
	asked := map[string]any{"target": map[string]any{"sessionId": id}, "op": op.Op{Kind: kind, Body: body}}
	if err := p.call(ctx, http.MethodPost, p.base+"/commands", p.token, asked, &answer); err != nil {
		return protocol.OpResult{}, err
	}
	switch {
	case answer.Error != nil:
		return protocol.OpResult{}, &answered{message: answer.Error.Message, name: answer.Error.Name}
	case answer.Result == nil:
		return protocol.OpResult{}, errors.New("the sandbox hasn't answered in time")
	}
	return *answer.Result, nil
}

// sync returns what the sandbox says of a session's pairings. The relay is asked, with
// a grant that can only read.
func (p *controlPlane) sync(ctx context.Context, id protocol.SessionID, sink string) (state op.SyncState, err error) {
	u, err := url.Parse(sink)
	if err != nil {
		return state, errors.New("sink.url in source.yaml isn't an address")
	}
	var bought struct {
		Grant string `json:"grant"`
	}
	wanted := map[string]any{"session_id": id, "capabilities": []protocol.Capability{protocol.CapView}}
	if err := p.call(ctx, http.MethodPost, p.base+"/grants", p.token, wanted, &bought); err != nil {
		return state, err
	}
	return state, p.call(ctx, http.MethodGet, u.Scheme+"://"+u.Host+"/sessions/"+string(id)+"/sync", bought.Grant, nil, &state)
}

// login returns the control plane that the person has logged in to.
func (r *run) login() (*controlPlane, config.Login, error) {
	l, err := r.dir.Login()
	if err != nil {
		return nil, l, err
	}
	return newControlPlane(strings.TrimSuffix(l.ControlPlane, "/"), l.Token), l, nil
}
