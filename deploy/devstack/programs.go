package devstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// agentTunnels is how many relays an agent is connected to, where there are so
// many.
const agentTunnels = 2

// log returns the file for a child's output.
func (s *Stack) log(name string) string { return filepath.Join(s.logs, name+".log") }

// private makes a directory below the state directory.
func (s *Stack) private(name string) (string, error) {
	dir := filepath.Join(s.cfg.StateDir, name)
	return dir, os.MkdirAll(dir, 0o700)
}

// program returns the path of the program that the child called name runs:
// "relay-2" is a relay.
func (s *Stack) program(name string) string {
	return filepath.Join(s.cfg.Bin, strings.TrimRight(strings.TrimRight(name, "0123456789"), "-"))
}

// launch starts a program that writes a ready file in dir.
func (s *Stack) launch(children context.Context, name, dir string, args ...string) (*child, error) {
	file := filepath.Join(dir, "ready.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // it would speak of an earlier life
		return nil, err
	}
	c, err := start(children, name, s.log(name), s.program(name), append(args, "--ready-file", file)...)
	if err != nil {
		return nil, err
	}
	c.ready = file
	return c, nil
}

// await waits until c is ready, and decodes what it says then.
func (s *Stack) await(ctx context.Context, c *child, ready any) error {
	data, err := c.waitFile(ctx, c.ready)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, ready); err != nil {
		return fmt.Errorf("%s: ready file: %w", c.name, err)
	}
	return nil
}

// startControlPlane starts the control plane with the stack's users.
func (s *Stack) startControlPlane(ctx, children context.Context) error {
	dir, err := s.private("controlplane")
	if err != nil {
		return err
	}
	cert, err := s.ca.issue(s.cfg.StateDir, "controlplane", controlPlaneName)
	if err != nil {
		return err
	}
	seed, err := s.writeSeed()
	if err != nil {
		return err
	}
	vault, err := s.vaultKey()
	if err != nil {
		return err
	}
	args := []string{
		"--state-dir", dir, "--listen", s.controlPlaneAddress(), "--tls-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--tls-cert", cert.cert, "--tls-key", cert.key, "--dev-seed", seed,
		"--certificate-life", enrolmentLife.String(), "--vault-key-file", vault,
	}
	if n := s.cfg.GrantsPerPerson; n > 0 {
		args = append(args, "--grants-per-person", strconv.Itoa(n))
	}
	if s.cfg.Integrations != "" {
		args = append(args, "--integrations", s.cfg.Integrations)
	}
	s.controlPlane, err = s.launch(children, "controlplane", dir, args...)
	if err != nil {
		return err
	}
	if err := s.await(ctx, s.controlPlane, &s.cpReady); err != nil {
		return err
	}
	return s.keepControlPlaneAddress()
}

// writeSeed writes what the control plane knows from its start.
func (s *Stack) writeSeed() (path string, err error) {
	type member struct {
		User protocol.UserID `json:"user_id"`
		Role string          `json:"role"`
	}
	type secret struct {
		ID         protocol.RelayID `json:"id"`
		Credential string           `json:"credential"`
	}
	type person struct {
		ID    protocol.UserID `json:"id"`
		Name  string          `json:"name"`
		Token string          `json:"token"`
	}
	type dashboard struct {
		ID        string             `json:"id"`
		SandboxID protocol.SandboxID `json:"sandbox_id"`
		SessionID protocol.SessionID `json:"session_id"`
		Members   []member           `json:"members"`
	}
	var seed struct {
		Users      []person    `json:"users"`
		Dashboards []dashboard `json:"dashboards"`
		Relays     []secret    `json:"relays"`
	}
	var members []member
	for _, u := range s.identity.Users {
		seed.Users = append(seed.Users, person{u.ID, u.Name, u.Token})
		members = append(members, member{u.ID, u.Role})
	}
	for _, sb := range s.identity.Sandboxes {
		seed.Dashboards = append(seed.Dashboards, dashboard{sb.Dashboard, sb.ID, sb.Session, members})
	}
	for _, r := range s.identity.Relays {
		seed.Relays = append(seed.Relays, secret{r.ID, r.Credential})
	}
	data, err := json.Marshal(seed)
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.cfg.StateDir, "seed.json")
	return path, program.ReplaceFile(path, data, 0o600)
}

// enrolmentLife is short, since each start of the stack has new certificates
// made and the control plane keeps a bounded number that are valid.
const enrolmentLife = time.Hour

// startSandbox invites and starts sandbox i, and waits until it has enrolled and
// is connected.
func (s *Stack) startSandbox(ctx, children context.Context, i int) error {
	name := "sandbox-agent-" + strconv.Itoa(i+1)
	dir, err := s.private(name)
	if err != nil {
		return err
	}
	sb := &sandbox{sandboxIdentity: s.identity.Sandboxes[i], stateDir: dir}
	invitation, err := s.invite(ctx, sb)
	if err != nil {
		return err
	}
	files, err := s.makeFiles(dir)
	if err != nil {
		return err
	}
	args := []string{
		"--state-dir", dir, "--invitation", invitation, "--status-file", filepath.Join(dir, "status.json"),
		"--workspace", filepath.Join(files, "workspace"), "--homes", filepath.Join(files, "homes"),
		"--broker-listen", "127.0.0.1:0", "--egress-listen", "127.0.0.1:0", "--mcp-listen", "127.0.0.1:0",
	}
	if !s.cfg.SandboxesSpread {
		// The first relay is to be primary, and nobody goes around SandboxRelays.
		args = append(args, "--relays", strings.Join(s.dialled(), ","))
	}
	if !s.cfg.UserEntries {
		args = append(args, "--user-entries=false")
	}
	if s.cfg.SyncUnisolated {
		args = append(args, "--sync-unisolated")
	}
	if s.cfg.AllowPrivileges {
		args = append(args, "--allow-privileges")
	}
	if s.cfg.SandboxConfig != "" {
		args = append(args, "--config", s.cfg.SandboxConfig)
	}
	if s.cfg.Egress {
		args = append(args, "--egress")
	}
	for _, host := range s.cfg.OutboundHosts {
		args = append(args, "--outbound-hosts", host)
	}
	sb.child, err = start(children, name, s.log(name), s.program(name), args...)
	if err != nil {
		return err
	}
	s.sandboxes = append(s.sandboxes, sb)
	return s.awaitConnected(ctx, sb)
}

// invite has the control plane write an invitation for the sandbox and returns
// the file. An earlier enrolment goes: it names the authority of an earlier
// start.
func (s *Stack) invite(ctx context.Context, sb *sandbox) (invitation string, err error) {
	if err := os.Remove(filepath.Join(sb.stateDir, "enrolment.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	invitation = filepath.Join(sb.stateDir, "invitation.json")
	args := []string{
		"invite", "--state-dir", filepath.Join(s.cfg.StateDir, "controlplane"), "--sandbox", string(sb.ID),
		"--ca", s.ca.file, "--server-name", controlPlaneName, "--relay-ca", s.ca.file, "--replace", "--out", invitation,
	}
	for _, addr := range s.dialled() {
		args = append(args, "--relay", addr)
	}
	_, err = s.tool(ctx, "controlplane", args...)
	return invitation, err
}

// tool runs a program to its end and returns what it prints.
func (s *Stack) tool(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.cfg.Bin, name), args...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.Env = &stderr, environment()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// makeExtension has the browser extension written into the state directory, with
// all of its parts, for the stack's relays. It learns the keys of page commands from
// the control plane itself, and pairs there.
func (s *Stack) makeExtension(ctx context.Context) (*readyExtension, error) {
	out, err := s.tool(ctx, "controlplane", "extension",
		"--out", filepath.Join(s.cfg.StateDir, "extension"), "--origins", strings.Join(origins(s.public, 0), ","),
		"--parts", "panel,pages,sync", "--tabs", "shared", "--jwks", s.cpReady.URL+"/.well-known/jwks.json", "--json")
	if err != nil {
		return nil, err
	}
	return decodeExtension(out)
}

// awaitConnected waits until as many relays report the sandbox as it keeps
// tunnels.
func (s *Stack) awaitConnected(ctx context.Context, sb *sandbox) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		connected := 0
		for _, r := range s.relays {
			if body, err := get(ctx, r.ready.AdminURL+"/healthz"); err == nil && bytes.Contains(body, []byte(sb.ID)) {
				connected++
			}
		}
		if connected >= min(len(s.dialled()), agentTunnels) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-sb.child.done:
			return sb.child.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s did not connect in time: %s (its log: %s)", sb.child.name, lastLine(sb.child.log), sb.child.log)
		}
	}
}

// createTerminal has alice open the first terminal of a sandbox, as anyone
// would.
func (s *Stack) createTerminal(ctx context.Context, sb *sandbox) error {
	body, err := json.Marshal(map[string]any{
		"target": map[string]any{"sessionId": sb.Session},
		"op":     map[string]any{"kind": op.KindPTYCreate},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cpReady.URL+"/commands", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.identity.user("alice").Token)
	req.Header.Set("Content-Type", "application/json")
	answer, err := do(req)
	if err != nil {
		return fmt.Errorf("the first terminal: %w", err)
	}
	var outcome struct {
		Status string            `json:"status"`
		Result protocol.OpResult `json:"result"`
	}
	if err := json.Unmarshal(answer, &outcome); err != nil || outcome.Status != protocol.StatusOK {
		return fmt.Errorf("the first terminal: %s", answer)
	}
	sb.pty = outcome.Result.PTYID
	return nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(req)
}

func do(req *http.Request) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	return body, err
}
