package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 4 << 20
	// connectionsPerHost bounds the connections for requests.
	connectionsPerHost = 32
	// grantLife is how long a grant is used before it is replaced.
	grantLife = 4 * time.Minute
)

// UserOptions identify a user and a deployment.
type UserOptions struct {
	Token   string // for the control plane
	Session protocol.SessionID
	// Relays are the origins of the relays to use, at least one.
	Relays []string
	// Anywhere also follows relays to others that are not in Relays. They get the
	// token.
	Anywhere bool
	// Grant, if not empty, is used instead of grants bought with the token.
	Grant string
	// Dial makes the connections; nil: a [net.Dialer].
	Dial DialFunc
	// TLS is for https origins; nil: the system's authorities.
	TLS *tls.Config
}

// A DialFunc makes a connection, like [net.Dialer.DialContext].
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A User has a token and uses one session of a deployment. It is safe for
// concurrent use. All viewers of a user share it, and so its grant, unless they
// use Apart.
type User struct {
	// Static after construction.
	opts    *UserOptions
	http    *http.Client // for requests
	sockets *http.Client // for chat sockets: one connection each

	mu      sync.Mutex
	grant   string    // guarded by mu
	granted time.Time // guarded by mu; zero: get a new one
}

// NewUser returns the user that o describes.
func NewUser(o UserOptions) *User {
	return &User{
		opts: &o,
		http: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: o.Dial, TLSClientConfig: o.TLS,
			MaxIdleConnsPerHost: connectionsPerHost, MaxConnsPerHost: connectionsPerHost,
			IdleConnTimeout: time.Minute, DisableCompression: true, ForceAttemptHTTP2: true,
		}},
		sockets: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: o.Dial, TLSClientConfig: o.TLS, DisableKeepAlives: true,
		}},
	}
}

// Apart returns the same user with grants of its own and the same connections.
// It is valid as long as u, and needs no Close.
func (u *User) Apart() *User { return &User{opts: u.opts, http: u.http, sockets: u.sockets} }

// Close closes idle connections.
func (u *User) Close() { u.http.CloseIdleConnections() }

// Session returns the user's session.
func (u *User) Session() protocol.SessionID { return u.opts.Session }

// Grant returns a grant for everything that the user may do in the session. It
// gets a new one at the relay with that origin if necessary.
func (u *User) Grant(ctx context.Context, origin string) (string, error) {
	if u.opts.Grant != "" {
		return u.opts.Grant, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.granted) < grantLife {
		return u.grant, nil
	}
	var answer struct {
		Grant string `json:"grant"`
	}
	err := u.exchange(ctx, http.MethodPost, origin+"/grants", u.opts.Token, map[string]any{"session_id": u.opts.Session}, &answer)
	if err != nil {
		return "", err
	}
	u.grant, u.granted = answer.Grant, time.Now()
	return u.grant, nil
}

// refused drops a grant that was refused.
func (u *User) refused(grant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.grant == grant {
		u.granted = time.Time{}
	}
}

// forget makes the next request get a new grant.
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
	err := u.withGrant(ctx, origin, http.MethodPost, origin+"/pty-session", map[string]any{"session_id": u.opts.Session, "pty_id": pty}, &t)
	return t, err
}

// withGrant is exchange with a grant, and with a fresh one if that is refused.
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

// exchange makes a request and decodes the answer into out, unless nil.
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
	if strings.HasPrefix(req.URL.Path, "/api/") { // for pages of the relay's own
		req.Header.Set("Origin", req.URL.Scheme+"://"+req.URL.Host)
	}
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

// Call makes a request below /sessions/{id} at the first relay with a grant. It
// sends bytes or a reader as they are, anything else as JSON; an [io.Writer] as
// out gets the raw answer. A reader is sent only once.
func (u *User) Call(ctx context.Context, method, path string, query url.Values, body, out any) error {
	address := u.opts.Relays[0] + "/sessions/" + string(u.opts.Session) + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	return u.withGrant(ctx, u.opts.Relays[0], method, address, body, out)
}

// CreatePTY opens a terminal.
func (u *User) CreatePTY(ctx context.Context, create op.PTYCreate) (protocol.PTYID, error) {
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

// Command runs a signed operation through the control plane.
func (u *User) Command(ctx context.Context, target, op any, out any) error {
	return u.exchange(ctx, http.MethodPost, u.opts.Relays[0]+"/commands", u.opts.Token, map[string]any{"target": target, "op": op}, out)
}

// A Session is one that the user may use.
type Session struct {
	ID      protocol.SessionID `json:"id"`
	Sandbox protocol.SandboxID `json:"sandbox"`
}

// Sessions returns the sessions that the user may use.
func (u *User) Sessions(ctx context.Context) ([]Session, error) {
	var me struct {
		Sessions []Session `json:"sessions"`
	}
	err := u.exchange(ctx, http.MethodGet, u.opts.Relays[0]+"/auth/me", u.opts.Token, nil, &me)
	return me.Sessions, err
}

// Sandbox returns the sandbox that the session is in.
func (u *User) Sandbox(ctx context.Context) (protocol.SandboxID, error) {
	sessions, err := u.Sessions(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range sessions {
		if s.ID == u.opts.Session {
			return s.Sandbox, nil
		}
	}
	return "", fmt.Errorf("the user has no session %s", u.opts.Session)
}
