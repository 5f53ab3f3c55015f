package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// Benchmarks of what loadtest can't measure, which has no more than a user: the
// control plane's key, a terminal's credentials, a provider of accounts, a sandbox
// with secrets beside one without. Both sides of a comparison have their turn in each iteration, so
// that a machine that slows down favours neither.

// quantile returns the q-th quantile of d, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed appends how long do took.
func timed(b *testing.B, to *[]time.Duration, do func() error) {
	b.Helper()
	began := time.Now()
	must(b, do())
	*to = append(*to, time.Since(began))
}

// BenchmarkToolCall: a tool call from a client through relay and tunnel to the
// agent and back, beside the same call on the sandbox's loopback. The median is
// to be twice that at most.
func BenchmarkToolCall(b *testing.B) {
	s, ctx := own(b), b.Context()
	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, s.Ready.PTYID)
	must(b, err)
	direct, err := LocalTools(ctx, credentials)
	must(b, err)
	defer direct.Close()
	through, err := s.Ready.User("alice").Tools(ctx, s.Ready.SessionID)
	must(b, err)
	defer through.Close()
	call := func(c *ToolClient) func() error {
		return func() error {
			text, failed, err := c.Call(ctx, "browser_status", map[string]any{}) // what the agent knows by itself
			if err == nil && failed {
				err = errors.New(text)
			}
			return err
		}
	}
	must(b, errors.Join(call(direct)(), call(through)()))
	var near, far []time.Duration
	for b.Loop() {
		timed(b, &near, call(direct))
		timed(b, &far, call(through))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(near, 0.5)), "direct-p50-ms")
	b.ReportMetric(millis(quantile(far, 0.5)), "p50-ms")
	b.ReportMetric(millis(quantile(far, 0.99)), "p99-ms")
	b.ReportMetric(float64(quantile(far, 0.5))/float64(quantile(near, 0.5)), "p50-ratio")
}

// BenchmarkToolsChange: from the request that attaches or detaches an account to
// the notification on the standard output of the bridge that a coding agent has
// as its MCP server. The 99th percentile is to be 200 ms at most.
func BenchmarkToolsChange(b *testing.B) {
	hub := NewFakeGitHub()
	defer hub.Close()
	setup, err := hub.Setup(b.TempDir())
	must(b, err)
	s, ctx := own(b, "--integrations", setup), b.Context()
	account, err := hub.Connect(ctx, s.Ready.User("alice"))
	must(b, err)
	github, err := s.GitHubAt(ctx, "alice", account, s.Ready.PTYID)
	must(b, err)
	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, s.Ready.PTYID)
	must(b, err)
	bridge := startBridge(b, credentials)
	var took []time.Duration
	for b.Loop() {
		for _, change := range []func(context.Context) error{github.Attach, github.Detach} {
			timed(b, &took, func() error {
				if err := change(ctx); err != nil {
					return err
				}
				return bridge.await("notifications/tools/list_changed")
			})
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(took, 0.5)), "p50-ms")
	b.ReportMetric(millis(quantile(took, 0.99)), "p99-ms")
}

// A bridge is a coding agent's MCP server, and we are the coding agent.
type bridge struct {
	in    io.Writer
	lines chan string
}

func startBridge(b *testing.B, c protocol.MCPCredentials) *bridge {
	b.Helper()
	cmd := exec.Command(filepath.Join(programs, "sandbox-agent"), "mcp-bridge")
	cmd.Env = []string{
		"FAIRLEAD_MCP_URL=" + c.URL, "FAIRLEAD_MCP_SECRET=" + c.Secret,
		"FAIRLEAD_SESSION_ID=" + string(c.SessionID), "FAIRLEAD_PTY_ID=" + string(c.PTYID), "HOME=/nonexistent",
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	p := &bridge{in: in, lines: make(chan string, 64)}
	go func() { // ends with the bridge, for which the cleanup waits
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	b.Cleanup(func() {
		in.Close()
		for range p.lines { // until its end
		}
		cmd.Wait()
	})
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+mcpVersion+`","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	must(b, p.await(`"serverInfo"`))
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	fmt.Fprintln(p.in, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	must(b, p.await(`"terminal_list"`))
	return p
}

// await waits for a line that holds part.
func (p *bridge) await(part string) error {
	patience := time.After(5 * time.Second)
	for {
		select {
		case line, open := <-p.lines:
			if !open {
				return errors.New("the bridge has ended")
			}
			if strings.Contains(line, part) {
				return nil
			}
		case <-patience:
			return fmt.Errorf("no %s within 5 s", part)
		}
	}
}

// BenchmarkEchoWithSecrets: a keystroke's echo in a sandbox that masks 10,000
// secrets in all encodings, beside one that has none. The 99th percentile is to
// be 20 ms more at most.
func BenchmarkEchoWithSecrets(b *testing.B) {
	plain, masked := own(b), own(b)
	setSecrets(b, masked, 10_000)
	conns := []*websocket.Conn{attachEcho(b, plain), attachEcho(b, masked)}
	took := make([][]time.Duration, len(conns))
	key := byte('a')
	for b.Loop() {
		for i, conn := range conns {
			timed(b, &took[i], func() error { return echo(b.Context(), conn, key) })
		}
		key = 'a' + (key-'a'+1)%26
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(took[0], 0.99)), "plain-p99-ms")
	b.ReportMetric(millis(quantile(took[1], 0.99)), "p99-ms")
	b.ReportMetric(millis(quantile(took[1], 0.99)-quantile(took[0], 0.99)), "more-p99-ms")
}

// setSecrets gives the stack's session n random secrets.
func setSecrets(b *testing.B, s *Stack, n int) {
	b.Helper()
	const each = 200 // a signed command has a size
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(b.Context(), s.Ready.SessionID)
	must(b, err)
	for set := 0; set < n; {
		secrets := map[string]any{}
		for range min(each, n-set) {
			secrets[fmt.Sprintf("S%d", set)] = map[string]any{"value": "sk-" + rand.Text()}
			set++
		}
		status, body, err := Call(b.Context(), http.MethodPost, fmt.Sprintf("%s/sessions/%s/env", alice.Base, s.Ready.SessionID), grant, map[string]any{"secrets": secrets})
		must(b, err)
		if status != http.StatusOK {
			b.Fatalf("env: status %d: %s", status, body)
		}
	}
}

// attachEcho opens a terminal that echoes bytes as they come.
func attachEcho(b *testing.B, s *Stack) *websocket.Conn {
	b.Helper()
	ctx, alice := b.Context(), s.Ready.User("alice")
	id, err := s.NewPTY(ctx, alice, "stty raw -echo; echo ready; exec cat")
	must(b, err)
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(b, err)
	ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, id)
	must(b, err)
	conn, err := DialRaw(ctx, ticket, alice.Base)
	must(b, err)
	b.Cleanup(func() { conn.CloseNow() })
	must(b, readUntil(ctx, conn, []byte("ready")))
	return conn
}

// echo types a key and waits until it is back.
func echo(ctx context.Context, conn *websocket.Conn, key byte) error {
	if err := conn.Write(ctx, websocket.MessageBinary, []byte{key}); err != nil {
		return err
	}
	return readUntil(ctx, conn, []byte{key})
}

// readUntil reads output until text has come.
func readUntil(ctx context.Context, conn *websocket.Conn, text []byte) error {
	var seen []byte
	for !bytes.Contains(seen, text) {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			seen = append(seen, data...)
		}
	}
	return nil
}
