package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// mcpVersion is the version of MCP that a ToolClient speaks.
const mcpVersion = "2025-06-18"

// A ToolClient is an MCP client over streamable HTTP that does one thing at a
// time: what a measurement wants.
type ToolClient struct {
	url    string
	header http.Header
	client *http.Client
	nextID int
}

// Tools opens an MCP session of the user's through the relay.
func (u User) Tools(ctx context.Context, session protocol.SessionID) (*ToolClient, error) {
	grant, err := u.Grant(ctx, session)
	if err != nil {
		return nil, err
	}
	return openTools(ctx, fmt.Sprintf("%s/sessions/%s/mcp", u.Base, session), http.Header{"Authorization": {"Bearer " + grant}})
}

// LocalTools opens an MCP session as a program of a terminal does.
func LocalTools(ctx context.Context, c protocol.MCPCredentials) (*ToolClient, error) {
	return openTools(ctx, c.URL+"?pty_id="+string(c.PTYID), http.Header{protocol.MCPSecretHeader: {c.Secret}})
}

// Credentials returns those that the agent with a process id has given a
// terminal. It reads the terminal's home, so it needs the right to.
func Credentials(agent int, pty protocol.PTYID) (protocol.MCPCredentials, error) {
	var c protocol.MCPCredentials
	homes, err := flagOf(agent, "--homes")
	if err != nil {
		return c, err
	}
	err = filepath.WalkDir(homes, func(path string, d os.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "mcp.json" || filepath.Base(filepath.Dir(path)) != ".fairlead" {
			return nil // of other terminals, some of which are just going
		}
		data, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(data, &c) == nil && c.PTYID == pty {
			return filepath.SkipAll
		}
		return nil
	})
	if err == nil && c.PTYID != pty {
		err = fmt.Errorf("no credentials of terminal %s in %s", pty, homes)
	}
	return c, err
}

// flagOf returns the value of a flag on a process's command line.
func flagOf(pid int, name string) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", err
	}
	args := strings.Split(string(data), "\x00")
	for i, arg := range args[:len(args)-1] {
		if arg == name {
			return args[i+1], nil
		}
	}
	return "", fmt.Errorf("no %s in %q", name, args)
}

func openTools(ctx context.Context, url string, header http.Header) (*ToolClient, error) {
	c := &ToolClient{url: url, header: header, client: &http.Client{Transport: &http.Transport{}}}
	c.header.Set("Content-Type", "application/json")
	c.header.Set("Accept", "application/json, text/event-stream")
	_, err := c.Request(ctx, "initialize", map[string]any{
		"protocolVersion": mcpVersion, "capabilities": map[string]any{}, "clientInfo": map[string]string{"name": "e2e", "version": "1"},
	})
	if err != nil {
		return nil, err
	}
	c.header.Set("Mcp-Protocol-Version", mcpVersion)
	_, _, err = c.post(ctx, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return c, err
}

// Request sends a request and returns its result. An error of the protocol is an
// error; one of a tool is a result.
func (c *ToolClient) Request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	c.nextID++
	body, header, err := c.post(ctx, map[string]any{"jsonrpc": "2.0", "id": c.nextID, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if id := header.Get("Mcp-Session-Id"); id != "" {
		c.header.Set("Mcp-Session-Id", id)
	}
	message, err := answerIn(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if message.Error != nil {
		return nil, fmt.Errorf("%s: %d %s", method, message.Error.Code, message.Error.Message)
	}
	return message.Result, nil
}

// Call calls a tool and returns the text of its result.
func (c *ToolClient) Call(ctx context.Context, tool string, arguments any) (text string, failed bool, err error) {
	result, err := c.Request(ctx, "tools/call", map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		return "", false, err
	}
	var answer protocol.ToolResult
	if err := json.Unmarshal(result, &answer); err != nil {
		return "", false, err
	}
	for _, content := range answer.Content {
		text += content.Text
	}
	return text, answer.IsError, nil
}

// List returns the names of the tools there are.
func (c *ToolClient) List(ctx context.Context) ([]string, error) {
	result, err := c.Request(ctx, "tools/list", map[string]any{})
	if err != nil {
		return nil, err
	}
	var list protocol.ToolList
	if err := json.Unmarshal(result, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

// Listen opens the stream of what the server says by itself and returns its
// messages, until ctx ends.
func (c *ToolClient) Listen(ctx context.Context) (<-chan string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.client.Do(req) //nolint:bodyclose // closed with the stream
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("listening: %s", resp.Status)
	}
	heard := make(chan string, 64)
	go func() {
		defer close(heard)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
				select {
				case heard <- strings.TrimSpace(data):
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return heard, nil
}

// Close forgets the connections.
func (c *ToolClient) Close() { c.client.CloseIdleConnections() }

func (c *ToolClient) post(ctx context.Context, message any) ([]byte, http.Header, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = c.header.Clone()
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 299 {
		err = fmt.Errorf("%s: %.200s", resp.Status, answer)
	}
	return answer, resp.Header, err
}

// An mcpAnswer is a response of JSON-RPC.
type mcpAnswer struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// answerIn returns the response in body, which is JSON or a stream of events.
func answerIn(body []byte) (m mcpAnswer, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return m, json.Unmarshal(body, &m)
	}
	for line := range strings.Lines(string(body)) {
		data, ok := strings.CutPrefix(line, "data:")
		if !ok || strings.TrimSpace(data) == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			return m, err
		}
		if m.Result != nil || m.Error != nil {
			return m, nil
		}
	}
	return m, errors.New("no response in the answer")
}
