package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// upgrade tries a WebSocket handshake and returns the status and body.
func upgrade(ctx context.Context, url string, header ...string) (int, string, error) {
	status, body, err := Call(ctx, http.MethodGet, strings.Replace(url, "ws", "http", 1), "", nil, append([]string{
		"Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==",
	}, header...)...)
	return status, string(body), err
}

func TestSocketsAreRefusedBeforeTheUpgrade(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	id, other := newPTY(t, s, ""), newPTY(t, s, "")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket := func() Ticket {
		ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, id)
		must(t, err)
		return ticket
	}
	used := ticket()
	term, err := Dial(ctx, used, alice.Base)
	must(t, err)
	defer term.Close()
	foreign, err := alice.Ticket(ctx, grant, s.Ready.SessionID, other)
	must(t, err)

	good := func() string { return "ticket." + ticket().Ticket }
	evil := "http://evil.example"
	port := alice.Base[strings.LastIndex(alice.Base, ":"):]
	cases := []struct {
		name     string
		status   int
		header   []string
		protocol string
	}{
		{"no origin", 403, nil, good()},
		{"another origin", 403, []string{"Origin", evil}, good()},
		{"origin null", 403, []string{"Origin", "null"}, good()},
		{"origin with a suffix", 403, []string{"Origin", alice.Base + ".evil.example"}, good()},
		{"origin with another scheme", 403, []string{"Origin", strings.Replace(alice.Base, "http", "https", 1)}, good()},
		{"origin with another port", 403, []string{"Origin", "http://127.0.0.1:1"}, good()},
		{"another host", 403, []string{"Origin", alice.Base, "Host", "evil.example" + port}, good()},
		{"host and origin rebound", 403, []string{"Origin", evil + port, "Host", "evil.example" + port}, good()},
		{"no ticket", 401, []string{"Origin", alice.Base}, ""},
		{"a made-up ticket", 401, []string{"Origin", alice.Base}, "ticket.AAAAAAAAAAAAAAAAAAAAAAAAAA"},
		{"a used ticket", 401, []string{"Origin", alice.Base}, "ticket." + used.Ticket},
		{"another terminal's ticket", 401, []string{"Origin", alice.Base}, "ticket." + foreign.Ticket},
		{"a grant for a ticket", 401, []string{"Origin", alice.Base}, "ticket." + grant},
		{"a user token for a ticket", 401, []string{"Origin", alice.Base}, "ticket." + alice.Token},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			header := c.header
			if c.protocol != "" {
				header = append(header, "Sec-WebSocket-Protocol", c.protocol)
			}
			status, body, err := upgrade(ctx, used.URL, header...)
			must(t, err)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			var answer struct {
				Error protocol.ErrorBody `json:"error"`
			}
			if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Error.Name != "AuthError" || len(body) > 80 {
				t.Errorf("body %q", body)
			}
		})
	}
}

func TestTicketAndCookieAreSpentTogether(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	id := newPTY(t, s, "")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	body, err := json.Marshal(map[string]any{"session_id": s.Ready.SessionID, "pty_id": id})
	must(t, err)
	mint := func() (Ticket, *http.Cookie) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, alice.Base+"/pty-session", bytes.NewReader(body))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+grant)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		var ticket Ticket
		must(t, json.NewDecoder(resp.Body).Decode(&ticket))
		cookies := resp.Cookies()
		if len(cookies) != 1 || cookies[0].Name != "fairlead_pty" || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode ||
			!strings.HasSuffix(ticket.URL, cookies[0].Path) || cookies[0].Domain != "" || cookies[0].MaxAge > 1800 {
			t.Fatalf("cookies %v", cookies)
		}
		return ticket, cookies[0]
	}
	try := func(url string, header ...string) int {
		status, _, err := upgrade(ctx, url, append([]string{"Origin", alice.Base}, header...)...)
		must(t, err)
		return status
	}
	cookieHeader := func(c *http.Cookie) []string { return []string{"Cookie", c.Name + "=" + c.Value} }

	ticket, cookie := mint()
	if got := try(ticket.URL, cookieHeader(cookie)...); got != http.StatusSwitchingProtocols {
		t.Errorf("cookie alone: %d", got)
	}
	if got := try(ticket.URL, "Sec-WebSocket-Protocol", "ticket."+ticket.Ticket); got != http.StatusUnauthorized {
		t.Errorf("ticket after its cookie: %d", got)
	}
	ticket, cookie = mint()
	if got := try(ticket.URL, append(cookieHeader(cookie), "Sec-WebSocket-Protocol", "ticket.wrong")...); got != http.StatusUnauthorized {
		t.Errorf("bad ticket beside a good cookie: %d", got)
	}

	// One of many at the same instant gets in.
	ticket, _ = mint()
	var won atomic.Int32
	var racing sync.WaitGroup
	for range 50 {
		racing.Go(func() {
			status, _, err := upgrade(ctx, ticket.URL, "Origin", alice.Base, "Sec-WebSocket-Protocol", "ticket."+ticket.Ticket)
			if err == nil && status == http.StatusSwitchingProtocols {
				won.Add(1)
			}
		})
	}
	racing.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 50 uses of one ticket got in", won.Load())
	}
}

func TestForeignHostsGetNothing(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	for _, url := range []string{
		s.Ready.Relays[0].URL + "/", s.Ready.Relays[0].URL + "/auth/me", s.Ready.Relays[0].AdminURL + "/healthz",
		s.Ready.Relays[0].AdminURL + "/metrics",
	} {
		status, _, err := Call(ctx, http.MethodGet, url, "", nil, "Host", "evil.example")
		must(t, err)
		if status != http.StatusForbidden {
			t.Errorf("%s for another host: %d", url, status)
		}
	}
	status, _, err := Call(ctx, http.MethodPost, s.Ready.Relays[0].URL+"/grants", s.Ready.User("alice").Token,
		map[string]any{"session_id": s.Ready.SessionID}, "Origin", "http://evil.example")
	must(t, err)
	if status != http.StatusForbidden {
		t.Errorf("another origin: %d", status)
	}
}
