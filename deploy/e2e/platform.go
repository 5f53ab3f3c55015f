package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// A CookieClient is the socket client of the terminal platform of seed 001, as a
// browser runs it: it opens the terminal's address with its cookies and nothing
// else, names its user in the query, and opens the same address again when the
// socket is lost.
type CookieClient struct {
	User    User
	Session protocol.SessionID
	PTY     protocol.PTYID
	Cookie  string // what the browser's jar has for the socket's path
	Socket  *Terminal

	grant string
}

// NewCookieClient buys a grant and, as the page does once, a cookie.
func NewCookieClient(ctx context.Context, u User, session protocol.SessionID, pty protocol.PTYID) (*CookieClient, error) {
	c := &CookieClient{User: u, Session: session, PTY: pty}
	var err error
	if c.grant, err = u.Grant(ctx, session); err != nil {
		return nil, err
	}
	return c, c.Load(ctx)
}

// Load is what loading the page does: POST /pty-session, whose ticket this client
// doesn't know how to use.
func (c *CookieClient) Load(ctx context.Context) error {
	body := fmt.Sprintf(`{"session_id":%q,"pty_id":%q}`, c.Session, c.PTY)
	req, err := newRequest(ctx, http.MethodPost, c.User.Base+"/pty-session", c.grant, body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("pty-session: %s", resp.Status)
	}
	c.keep(resp)
	return nil
}

// keep does what a browser does with the cookies of an answer.
func (c *CookieClient) keep(resp *http.Response) {
	cookies := resp.Cookies()
	if i := slices.IndexFunc(cookies, func(k *http.Cookie) bool { return k.Name == "fairlead_pty" && k.Path == c.path() }); i >= 0 {
		c.Cookie = cookies[i].Value
	}
}

func (c *CookieClient) path() string {
	return fmt.Sprintf("/sessions/%s/ptys/%s/ws", c.Session, c.PTY)
}

// Dial opens the socket with a cookie, from a page of origin, and returns the
// status of the answer too.
func (c *CookieClient) Dial(ctx context.Context, cookie, origin string) (*websocket.Conn, int, error) {
	query := url.Values{"user_id": {"usr_somebody_else"}, "user_email": {"dev@example.com"}}
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	if cookie != "" {
		header.Set("Cookie", "fairlead_pty="+cookie)
	}
	conn, resp, err := websocket.Dial(ctx, c.User.Base+c.path()+"?"+query.Encode(), &websocket.DialOptions{HTTPHeader: header})
	status := 0
	if resp != nil {
		status = resp.StatusCode
		c.keep(resp)
	}
	return conn, status, err
}

// Connect opens the socket, as at first and after each loss.
func (c *CookieClient) Connect(ctx context.Context) error {
	conn, status, err := c.Dial(ctx, c.Cookie, c.User.Base)
	if err != nil {
		return fmt.Errorf("status %d: %w", status, err)
	}
	conn.SetReadLimit(16 << 20)
	c.Socket = &Terminal{conn: conn, changed: make(chan struct{}), over: make(chan struct{})}
	go c.Socket.read() // ends with the socket, which Lose closes
	return nil
}

// Lose ends the socket without a word, as a network does.
func (c *CookieClient) Lose() { c.Socket.Close() }
