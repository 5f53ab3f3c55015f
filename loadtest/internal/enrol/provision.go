package enrol

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// An Invite says how the control plane's own program makes invitations.
type Invite struct {
	Program  string          // path of controlplane
	StateDir string          // the control plane's
	Count    int             // at least 1
	Owner    protocol.UserID // gets a dashboard for each sandbox; empty: nobody does
	TTL      time.Duration   // of the invitations; 0: as the program has it
}

// Run has the invitations made. Where sandboxes are to be told to go is what the
// control plane told the last one.
func (i Invite) Run(ctx context.Context) ([]*protocol.Invitation, error) {
	dir, err := os.MkdirTemp("", "fairlead-invitations-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "invitations.jsonl")
	args := []string{"invite", "--state-dir", i.StateDir, "--count", strconv.Itoa(i.Count), "--out", out}
	if i.Owner != "" {
		args = append(args, "--owner", string(i.Owner))
	}
	if i.TTL > 0 {
		args = append(args, "--ttl", i.TTL.String())
	}
	cmd := exec.CommandContext(ctx, i.Program, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("controlplane invite: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return ReadInvitations(out)
}

// DirectAddress returns the address of the TLS listener of a control plane that
// runs on this machine, as its ready file in stateDir says.
func DirectAddress(stateDir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, "ready.json"))
	if err != nil {
		return "", err
	}
	var ready struct {
		TLS string `json:"tls"`
	}
	if err := json.Unmarshal(data, &ready); err != nil || ready.TLS == "" {
		return "", fmt.Errorf("%s/ready.json names no address for TLS", filepath.Base(stateDir))
	}
	return ready.TLS, nil
}

// An Account is a user at the control plane's API, directly or through a relay.
type Account struct {
	URL    string // origin
	Token  string
	Client *http.Client // nil: http.DefaultClient
}

const (
	// callTimeout bounds a request: a command may take its own time.
	callTimeout = protocol.DefaultCommandTTL + 10*time.Second
	maxAnswer   = 1 << 20
)

// Session begins a session in a sandbox, which must be connected.
func (a Account) Session(ctx context.Context, sandbox protocol.SandboxID) (protocol.SessionID, error) {
	result, err := a.command(ctx, map[string]any{"sandboxId": sandbox}, map[string]any{"kind": op.KindSessionCreate})
	return result.SessionID, err
}

// Dashboard returns the dashboard of a session.
func (a Account) Dashboard(ctx context.Context, session protocol.SessionID) (string, error) {
	var me struct {
		Sessions []struct {
			ID        protocol.SessionID `json:"id"`
			Dashboard string             `json:"dashboard"`
		} `json:"sessions"`
	}
	if err := a.Do(ctx, http.MethodGet, "/auth/me", nil, &me); err != nil {
		return "", err
	}
	for _, s := range me.Sessions {
		if s.ID == session {
			return s.Dashboard, nil
		}
	}
	return "", fmt.Errorf("session %s is not among the user's", session)
}

// Do makes a request with a body of JSON (nil: none) and decodes the answer into
// out, which may be nil.
func (a Account) Do(ctx context.Context, method, path string, body, out any) error {
	status, answer, err := a.exchange(ctx, method, path, body)
	switch {
	case err != nil:
		return err
	case status < 200 || status > 299:
		return fmt.Errorf("%s %s: status %d: %.200s", method, path, status, answer)
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer, out)
}

// Terminal opens a terminal that runs command; "": what the sandbox runs by
// itself.
func (a Account) Terminal(ctx context.Context, session protocol.SessionID, command string) (protocol.PTYID, error) {
	op := map[string]any{"kind": op.KindPTYCreate}
	if command != "" {
		op["command"] = command
	}
	result, err := a.command(ctx, map[string]any{"sessionId": session}, op)
	return result.PTYID, err
}

// command has an operation signed and done, and returns what came of it.
func (a Account) command(ctx context.Context, target, op map[string]any) (protocol.OpResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, answer, err := a.exchange(ctx, http.MethodPost, "/commands", map[string]any{"target": target, "op": op})
	if err != nil {
		return protocol.OpResult{}, err
	}
	return outcome(op["kind"], status, answer)
}

// exchange makes a request and returns what came of it.
func (a Account) exchange(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(a.URL, "/")+path, payload)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.Token)
	req.Header.Set("Content-Type", "application/json")
	client := a.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, answer, err
}

// outcome reads the answer to a command.
func outcome(kind any, status int, answer []byte) (protocol.OpResult, error) {
	var said struct {
		Status string              `json:"status"`
		Result protocol.OpResult   `json:"result"`
		Error  *protocol.ErrorBody `json:"error"`
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return said.Result, fmt.Errorf("%v: status %d", kind, status)
	}
	if said.Error != nil {
		return said.Result, fmt.Errorf("%v: status %d: %s: %s", kind, status, said.Error.Name, said.Error.Message)
	}
	if said.Status != protocol.StatusOK {
		return said.Result, fmt.Errorf("%v: the outcome is %q", kind, said.Status)
	}
	return said.Result, nil
}
