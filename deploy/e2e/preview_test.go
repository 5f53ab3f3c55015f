package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"testing"
)

// startWebapp runs the web application in a terminal and returns both.
func startWebapp(t *testing.T, s *Stack) (term *Terminal, port int) {
	t.Helper()
	install(t, workspace(t, s.Ready.Sandboxes[0].PID), "webapp")
	term = attach(t, s, "alice", newPTY(t, s, "exec ./webapp"))
	must(t, term.Await(within(t), "the port", func(output []byte, _ []Message, _ error) bool {
		_, err := fmt.Sscanf(string(regexp.MustCompile(`port:\d+:`).Find(output)), "port:%d:", &port)
		return err == nil
	}))
	return term, port
}

// openPreview is POST /sessions/{sid}/previews.
func openPreview(ctx context.Context, t *testing.T, s *Stack, user string, port int) (status int, url string) {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	status, body, err := Call(ctx, http.MethodPost, fmt.Sprintf("%s/sessions/%s/previews", u.Base, s.Ready.SessionID), grant, map[string]any{"port": port})
	must(t, err)
	var answer struct {
		URL string `json:"url"`
	}
	if status == http.StatusOK || status == http.StatusCreated {
		must(t, json.Unmarshal(body, &answer))
	}
	return status, answer.URL
}

// previewClient is a browser's cookies and the names of loopback that a browser
// knows by itself.
func previewClient(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport}
}

// TestPreview: what a program in the sandbox serves is shown on a host of its
// own, whole: both directions at once, trailers, an end that is noticed. Nothing
// of anybody's credentials gets to the program.
func TestPreview(t *testing.T) {
	s := own(t)
	ctx := within(t)
	term, port := startWebapp(t, s)
	if status, _ := openPreview(ctx, t, s, "carol", port); status != http.StatusForbidden {
		t.Errorf("carol, who has no plugins: status %d", status)
	}
	_, link := openPreview(ctx, t, s, "alice", port)
	client := previewClient(t)
	get := func(path string, body io.Reader) *http.Response {
		t.Helper()
		method := http.MethodGet
		if body != nil {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(ctx, method, path, body)
		must(t, err)
		req.Header.Set("Authorization", "Bearer of-the-page-itself")
		resp, err := client.Do(req)
		must(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := get(link, nil)
	page, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "from the sandbox") {
		t.Fatalf("status %d: %s", resp.StatusCode, page)
	}
	origin := "http://" + resp.Request.URL.Host
	if origin == s.Ready.Relays[0].URL || resp.Request.URL.RawQuery != "" {
		t.Errorf("shown at %s", resp.Request.URL)
	}
	if status, _, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].URL+"/", "", nil, "Host", resp.Request.URL.Host); err != nil || status < 400 {
		t.Errorf("the console under the preview's name: status %d, %v", status, err)
	}

	var seen http.Header
	must(t, json.NewDecoder(get(origin+"/headers", nil).Body).Decode(&seen))
	if cookie := seen.Get("Cookie"); cookie != "app=its-own" {
		t.Errorf("the program got the cookies %q", cookie)
	}
	if host := seen.Get("Host"); host != fmt.Sprintf("localhost:%d", port) && host != fmt.Sprintf("127.0.0.1:%d", port) {
		t.Errorf("Host: %s", host)
	}
	up, feed := io.Pipe()
	answers := make(chan *http.Response, 1)
	go func() { answers <- get(origin+"/duplex", up) }() // received below
	var lines *bufio.Scanner
	for i := range 3 {
		_, err := feed.Write([]byte(strings.Repeat("x", 10+i)))
		must(t, err)
		if lines == nil {
			lines = bufio.NewScanner((<-answers).Body)
		}
		if !lines.Scan() || lines.Text() != fmt.Sprintf("got %d", 10+i) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	feed.Close()
	resp = get(origin+"/trailer", nil)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("trailer %v, %v", resp.Trailer, err)
	}
	resp = get(origin+"/forever", nil)
	if _, err := io.ReadFull(resp.Body, make([]byte, 20)); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	must(t, term.Expect(ctx, "nobody-listens"))

	// Who has no cookie sees nothing, nor does a port that is no terminal's.
	if resp, err := (&http.Client{Transport: client.Transport}).Get(origin + "/"); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a cookie: %v, %v", resp, err)
	}
	_, own := openPreview(ctx, t, s, "alice", portOf(t, s.Ready.ControlPlane.URL))
	resp = get(own, nil)
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode < 400 {
		t.Errorf("the control plane's port: status %d: %.100s", resp.StatusCode, body)
	}
}

func portOf(t *testing.T, url string) (port int) {
	t.Helper()
	_, err := fmt.Sscanf(url[strings.LastIndexByte(url, ':'):], ":%d", &port)
	must(t, err)
	return port
}

// TestPreviewInABrowser: a page of the sandbox runs, its WebSocket too, and it
// can't reach what the console has.
func TestPreviewInABrowser(t *testing.T) {
	s := own(t)
	_, port := startWebapp(t, s)
	_, link := openPreview(within(t), t, s, "alice", port)
	w := openWindow(t, "preview", link, 800, 600)
	w.until(`document.body?.innerText.includes("from the sandbox, echoed ping")`)
	if title := eval[string](w, "document.title"); title != "runs" {
		t.Errorf("its script did not run: %q", title)
	}
	relay := s.Ready.Relays[0].URL
	eval[bool](w, fmt.Sprintf(`fetch(%q + "/auth/me", {credentials: "include"}).then(() => window.got = "read", () => window.got = "kept out"), true`, relay))
	w.until(`window.got`)
	if got := eval[string](w, "window.got"); got != "kept out" {
		t.Errorf("the page has %s the relay's answer", got)
	}
	if kept := eval[int](w, "sessionStorage.length + localStorage.length"); kept != 0 {
		t.Error("the page finds what the console stores")
	}
}
