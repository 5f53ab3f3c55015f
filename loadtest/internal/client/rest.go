// Package client is a user of a deployment: it speaks the public sockets and
// REST, as a browser would, but so cheaply that one process is thousands of
// viewers.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 4 << 20
	// connectionsPerHost is how many connections ask for tickets at once.
	connectionsPerHost = 32
	// grantLife is how long a grant is used before another one is bought.
	grantLife = 4 * time.Minute
)

// A User is somebody with a token, who uses one session of a deployment. It is
// safe for concurrent use, and all of somebody's viewers share one, and so its
// grant, unless they are to be apart.
type User struct {
	// Static after construction.
	token   string
	session protocol.SessionID
	relays  []string // origins
	http    *http.Client

	mu      sync.Mutex
	grant   string    // guarded by mu
	granted time.Time // guarded by mu; zero: buy another one
}

// NewUser returns a user of the session who knows the relays by their origins;
// there must be one.
func NewUser(token string, session protocol.SessionID, relays ...string) *User {
	return &User{
		token: token, session: session, relays: relays,
		http: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: connectionsPerHost, MaxConnsPerHost: connectionsPerHost,
			IdleConnTimeout: time.Minute, DisableCompression: true,
		}},
	}
}

// Apart returns the same somebody with grants of its own, over the same
// connections. It lives no longer than u, and needs no Close.
func (u *User) Apart() *User {
	return &User{token: u.token, session: u.session, relays: u.relays, http: u.http}
}

// Close ends the connections that wait for use.
func (u *User) Close() { u.http.CloseIdleConnections() }

// Session returns the session that is used.
func (u *User) Session() protocol.SessionID { return u.session }

// Grant returns a grant of all that the user may do in the session, bought at
// the relay of that origin if need be.
func (u *User) Grant(ctx context.Context, origin string) (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.granted) < grantLife {
		return u.grant, nil
	}
	var answer struct {
		Grant string `json:"grant"`
	}
	err := u.exchange(ctx, http.MethodPost, origin+"/grants", u.token, map[string]any{"session_id": u.session}, &answer)
	if err != nil {
		return "", err
	}
	u.grant, u.granted = answer.Grant, time.Now()
	return u.grant, nil
}

// refused forgets a grant that wasn't taken.
func (u *User) refused(grant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.grant == grant {
		u.granted = time.Time{}
	}
}

// forget has the next request buy another grant.
func (u *User) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.granted = time.Time{}
}

// A ticket opens one socket.
type ticket struct {
	URL    string `json:"ws_url"`
	Ticket string `json:"ticket"`
}

func (u *User) ticket(ctx context.Context, origin string, pty protocol.PTYID) (ticket, error) {
	var t ticket
	err := u.withGrant(ctx, origin, http.MethodPost, origin+"/pty-session", map[string]any{"session_id": u.session, "pty_id": pty}, &t)
	return t, err
}

// withGrant is exchange with a grant, a fresh one if the first isn't taken.
func (u *User) withGrant(ctx context.Context, origin, method, address string, body, out any) error {
	for attempt := 0; ; attempt++ {
		grant, err := u.Grant(ctx, origin)
		if err != nil {
			return err
		}
		err = u.exchange(ctx, method, address, grant, body, out)
		status, ok := errors.AsType[*StatusError](err)
		if !ok || status.Status != http.StatusUnauthorized || attempt > 0 {
			return err
		}
		u.refused(grant)
	}
}

// exchange makes a request and decodes the answer into out, which may be nil.
func (u *User) exchange(ctx context.Context, method, address, bearer string, body, out any) error {
	var payload io.Reader
	contentType := "application/json"
	switch body := body.(type) {
	case nil:
	case []byte:
		payload, contentType = bytes.NewReader(body), "application/octet-stream"
	case io.Reader:
		payload, contentType = body, "application/octet-stream"
	default:
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
	if payload != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return &StatusError{method + " " + req.URL.Path, resp.StatusCode, string(text)}
	}
	switch out := out.(type) {
	case nil:
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	case io.Writer:
		_, err = io.Copy(out, resp.Body)
	default:
		err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("answer to %s %s: %w", method, req.URL.Path, err)
	}
	return nil
}

// Call makes a request below /sessions/{id} at the first relay with a grant. A
// body of bytes or a reader is sent as it is, anything else as JSON; an out that
// is an [io.Writer] gets the answer as it is. A reader is sent once only.
func (u *User) Call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	address := u.relays[0] + "/sessions/" + string(u.session) + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return u.withGrant(ctx, u.relays[0], method, address, body, out)
}

// CreatePTY opens a terminal.
func (u *User) CreatePTY(ctx context.Context, create protocol.PTYCreate) (protocol.PTYID, error) {
	var made protocol.PTYInfo
	if err := u.Call(ctx, http.MethodPost, "/ptys", nil, create, &made); err != nil {
		return "", err
	}
	return made.ID, nil
}

// ClosePTY ends a terminal.
func (u *User) ClosePTY(ctx context.Context, pty protocol.PTYID) error {
	return u.Call(ctx, http.MethodDelete, "/ptys/"+string(pty), nil, nil, nil)
}

// PutFile writes a file of the workspace.
func (u *User) PutFile(ctx context.Context, path string, content io.Reader) error {
	return u.Call(ctx, http.MethodPut, "/file", url.Values{"path": {path}}, content, nil)
}

// GetFile copies a file of the workspace to w.
func (u *User) GetFile(ctx context.Context, path string, w io.Writer) error {
	return u.Call(ctx, http.MethodGet, "/file", url.Values{"path": {path}}, nil, w)
}

// DeleteFile removes a file of the workspace.
func (u *User) DeleteFile(ctx context.Context, path string) error {
	return u.Call(ctx, http.MethodDelete, "/file", url.Values{"path": {path}}, nil, nil)
}

// Command has the control plane run a signed operation, and returns its result.
func (u *User) Command(ctx context.Context, target, op any, out any) error {
	return u.exchange(ctx, http.MethodPost, u.relays[0]+"/commands", u.token, map[string]any{"target": target, "op": op}, out)
}

// Sandbox returns the sandbox that the session is in.
func (u *User) Sandbox(ctx context.Context) (protocol.SandboxID, error) {
	var me struct {
		Sessions []struct {
			ID      protocol.SessionID `json:"id"`
			Sandbox protocol.SandboxID `json:"sandbox"`
		} `json:"sessions"`
	}
	if err := u.exchange(ctx, http.MethodGet, u.relays[0]+"/auth/me", u.token, nil, &me); err != nil {
		return "", err
	}
	for _, s := range me.Sessions {
		if s.ID == u.session {
			return s.Sandbox, nil
		}
	}
	return "", fmt.Errorf("the user has no session %s", u.session)
}
