package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listening returns the TCP ports that each program of the stack listens at.
func listening(t *testing.T, s *Stack) map[string][]int {
	t.Helper()
	names := map[int]string{s.Ready.ControlPlane.PID: "control plane"}
	for i, r := range s.Ready.Relays {
		names[r.PID] = fmt.Sprintf("relay-%d", i+1)
	}
	for i, sb := range s.Ready.Sandboxes {
		names[sb.PID] = fmt.Sprintf("agent-%d", i+1)
	}
	out, err := exec.Command("ss", "-Hltnp").Output()
	if err != nil {
		t.Fatalf("ss (Debian: iproute2): %v", err)
	}
	ports := map[string][]int{}
	for line := range strings.Lines(string(out)) {
		for pid, name := range names {
			if !strings.Contains(line, fmt.Sprintf("pid=%d,", pid)) {
				continue
			}
			_, port, err := net.SplitHostPort(strings.Fields(line)[3])
			must(t, err)
			n, err := strconv.Atoi(port)
			must(t, err)
			ports[name] = append(ports[name], n)
		}
	}
	return ports
}

// secretsOf returns what no body may hold: every token, credential and secret of
// the stack, and its private keys.
func secretsOf(t *testing.T, s *Stack) map[string]string {
	t.Helper()
	var identity struct {
		Users []struct {
			Name, Token string
		}
		Relays []struct{ Credential, Secret string }
	}
	data, err := os.ReadFile(filepath.Join(s.Dir, "identity.json"))
	must(t, err)
	must(t, json.Unmarshal(data, &identity))
	secrets := map[string]string{}
	for _, u := range identity.Users {
		secrets["token of "+u.Name] = u.Token
	}
	for i, r := range identity.Relays {
		secrets[fmt.Sprintf("credential of relay %d", i+1)] = r.Credential
		secrets[fmt.Sprintf("secret of relay %d", i+1)] = r.Secret
	}
	vault, err := os.ReadFile(filepath.Join(s.Dir, "vault-key"))
	must(t, err)
	secrets["vault key"] = strings.TrimSpace(string(vault))
	var device struct {
		D   string
		Key struct{ D string }
	}
	data, err = os.ReadFile(filepath.Join(s.Ready.Sandboxes[0].StateDir, "device-key.json"))
	must(t, err)
	must(t, json.Unmarshal(data, &device))
	secrets["device key"] = device.D + device.Key.D
	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, s.Ready.PTYID)
	must(t, err)
	secrets["MCP secret"] = credentials.Secret
	for name, secret := range secrets {
		if len(secret) < 16 {
			t.Fatalf("%s: %q", name, secret)
		}
	}
	return secrets
}

// routesOf returns the paths of a program's own description, with ids in them.
func routesOf(ctx context.Context, t *testing.T, s *Stack, base string) []string {
	t.Helper()
	var description struct {
		Paths map[string]any `json:"paths"`
	}
	must(t, call(ctx, http.StatusOK, &description, http.MethodGet, base+"/openapi.json", "", nil))
	ids := strings.NewReplacer("{sid}", string(s.Ready.SessionID), "{pid}", string(s.Ready.PTYID), "{pty}", string(s.Ready.PTYID))
	unknown := regexp.MustCompile(`\{[^}]*\}`)
	var routes []string
	for path := range description.Paths {
		routes = append(routes, unknown.ReplaceAllString(ids.Replace(path), "x_1"))
	}
	slices.Sort(routes)
	return routes
}

// adminRoutes are those of every listener for operators. Of a profile there is
// nothing to read.
var adminRoutes = []string{
	"/", "/healthz", "/readyz", "/sandboxes", "/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol",
	"/debug/pprof/goroutine?debug=2", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs?debug=1",
	"/debug/pprof/block?debug=1", "/debug/pprof/mutex?debug=1", "/debug/pprof/threadcreate?debug=1",
	"/debug/vars", "/env", "/config", "/status",
}

// bodyOf asks without a word about who asks, and returns head and body of the
// answer. A stream is read for a moment.
func bodyOf(ctx context.Context, port int, secured bool, path string) (status int, text string, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if secured {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // anybody can
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n", path, port)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	if strings.Contains(resp.Header.Get("Content-Type"), "event-stream") {
		conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	}
	var head strings.Builder
	resp.Header.Write(&head)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return resp.StatusCode, head.String() + string(body), nil
}

// TestCase106NothingInBodies: whoever asks without authority for any route of any
// listener reads no token, no key and no port.
func TestCase106NothingInBodies(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	secrets, ports := secretsOf(t, s), listening(t, s)
	routes := slices.Concat(
		routesOf(ctx, t, s, s.Ready.Relays[0].URL), routesOf(ctx, t, s, s.Ready.ControlPlane.URL), adminRoutes,
		[]string{"/mcp", "/hooks", "/sse", "/egress", "/api/anthropic", "/index.html", "/assets/", "/favicon.ico", "/robots.txt", "/.git/config", "/.well-known/oauth-authorization-server"})
	public := s.Ready.Relays[0].URL // previews name the console's origin, as who comes there must know it
	var numbers []string
	for _, list := range ports {
		for _, port := range list {
			if number := strconv.Itoa(port); !strings.HasSuffix(public, ":"+number) {
				numbers = append(numbers, number)
			}
		}
	}
	// A number of a metric or an address in memory may be that of a port by chance,
	// so one that begins a line or a value of its own isn't taken for one.
	named := func(port string) *regexp.Regexp {
		return regexp.MustCompile(`(?i)(\d\.\d+\.\d+\.\d+|localhost|\[::1?\]|127\.0\.0\.1)?[:"=]` + port + `\b`)
	}
	asked, answered := 0, map[string]int{}
	for _, program := range slices.Sorted(maps.Keys(ports)) {
		for _, port := range ports[program] {
			secured := false
			if _, _, err := bodyOf(ctx, port, false, "/"); err != nil {
				secured = true
			}
			own := strconv.Itoa(port)
			for _, route := range routes {
				asked++
				status, text, err := bodyOf(ctx, port, secured, route)
				if err != nil {
					continue // what isn't HTTP says nothing
				}
				answered[fmt.Sprintf("%s: %d", program, status)]++
				for name, secret := range secrets {
					if strings.Contains(text, secret) {
						t.Errorf("%s, port %d, GET %s: the %s", program, port, route, name)
					}
				}
				if strings.Contains(text, "PRIVATE KEY") {
					t.Errorf("%s, port %d, GET %s: a private key", program, port, route)
				}
				for _, number := range numbers {
					if number == own { // who asks knows it
						continue
					}
					if found := named(number).FindString(text); found != "" {
						t.Errorf("%s, port %d, GET %s: another port: %q", program, port, route, found)
					}
				}
			}
		}
	}
	t.Logf("%d requests to %v; answers %v", asked, ports, answered)
	for _, program := range []string{"control plane", "relay-1", "agent-1"} {
		if len(ports[program]) < 3 {
			t.Errorf("%s listens at %v: some are missing", program, ports[program])
		}
	}
}
