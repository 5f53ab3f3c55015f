package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// invite has the control plane invite a sandbox.
func invite(t *testing.T, s *Stack, id protocol.SandboxID) *protocol.Invitation {
	t.Helper()
	file := filepath.Join(t.TempDir(), "invitation.json")
	out, code := controlplane(t, s, "invite", "--sandbox", string(id), "--ca", filepath.Join(s.Dir, "ca.pem"),
		"--server-name", "controlplane.fairlead.internal", "--relay", s.Ready.Relays[0].Tunnel,
		"--relay-ca", filepath.Join(s.Dir, "ca.pem"), "--out", file)
	if code != 0 {
		t.Fatalf("invite: %s", out)
	}
	data, err := os.ReadFile(file)
	must(t, err)
	i, err := protocol.ParseInvitation(data)
	must(t, err)
	return i
}

func pool(t *testing.T, pem string) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(pem)) {
		t.Fatal("no certificate")
	}
	return p
}

// enrol uses an invitation with a key of its own, through a real relay.
func enrol(ctx context.Context, t *testing.T, i *protocol.Invitation) (int, []byte) {
	t.Helper()
	raw, err := tunnel.Connect(ctx, tunnel.DialConfig{Addr: i.Relays[0], TLS: &tls.Config{RootCAs: pool(t, i.RelayCAPEM)}})
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{
		RootCAs: pool(t, i.ControlPlane.CAPEM), ServerName: i.ControlPlane.ServerName, MinVersion: tls.VersionTLS13,
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		t.Error(err)
		return 0, nil
	}
	state := conn.ConnectionState()
	exporter, err := state.ExportKeyingMaterial(protocol.ExporterLabel, nil, 32)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	device, err := jws.GenerateDeviceKey()
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	signature, err := device.Sign(protocol.EnrolTranscript(i.SandboxID, exporter))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	client := &http.Client{Transport: &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	body, err := json.Marshal(protocol.EnrolRequest{
		SandboxID: i.SandboxID, Token: i.Token, DeviceKey: device.PublicJWK(), Signature: signature,
	})
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	resp, err := client.Post("https://"+i.ControlPlane.ServerName+"/enrol", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer resp.Body.Close()
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(resp.Body); err != nil {
		t.Error(err)
	}
	return resp.StatusCode, answer.Bytes()
}

// TestInvitationIsForOne: fifty sandboxes come with the same invitation at once.
func TestInvitationIsForOne(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	i := invite(t, s, protocol.NewSandboxID())
	const guests = 50
	statuses := make([]int, guests)
	var coming sync.WaitGroup
	for n := range statuses {
		coming.Go(func() {
			status, body := enrol(ctx, t, i)
			statuses[n] = status
			if status == http.StatusOK {
				if e, err := protocol.ParseEnrolment(body); err != nil || e.SandboxID != i.SandboxID {
					t.Errorf("enrolment %s: %v", body, err)
				}
			} else if !strings.Contains(string(body), "AuthError") {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	coming.Wait()
	counts := map[int]int{}
	for _, status := range statuses {
		counts[status]++
	}
	if counts[http.StatusOK] != 1 || counts[http.StatusUnauthorized] != guests-1 {
		t.Errorf("answers %v", counts)
	}
	if log := s.Logs("relay-1") + s.Logs("controlplane"); strings.Contains(log, i.Token) {
		t.Error("the token is in a log")
	}
}

// TestEnrolledAgentWorks: an agent with nothing but an invitation comes up.
func TestEnrolledAgentWorks(t *testing.T) {
	s := own(t)
	ctx := within(t)
	i := invite(t, s, protocol.NewSandboxID())
	data, err := json.Marshal(i)
	must(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "invitation.json")
	must(t, os.WriteFile(file, data, 0o600))
	_, output := startAgent(t, filepath.Join(dir, "state"), "--invitation", file)
	awaitText(ctx, t, output.String, "connected")
	if strings.Contains(output.String(), i.Token) {
		t.Error("the token is in the log")
	}
	// Revoked, its tunnel ends and it doesn't come back.
	if out, code := controlplane(t, s, "sandbox", "revoke", string(i.SandboxID)); code != 0 {
		t.Fatalf("revoke: %s", out)
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		_, body, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].AdminURL+"/sandboxes", "", nil)
		must(t, err)
		if !strings.Contains(string(body), string(i.SandboxID)) {
			break
		}
		<-poll.C
	}
}

// TestAuditOfARealAgent verifies the log of an agent that did things, and finds
// the line that somebody changed.
func TestAuditOfARealAgent(t *testing.T) {
	s := own(t)
	ctx := within(t)
	id := newPTY(t, s, "cat")
	a := attach(t, s, "alice", id)
	_, err := a.ExpectMessage(ctx, protocol.ServerControlState, controller(s.Ready.User("alice").ID))
	must(t, err)
	must(t, a.Say(ctx, Message{"type": "revoke_control"}))
	_, err = a.ExpectMessage(ctx, protocol.ServerControlRevoked, nil)
	must(t, err)
	dir := filepath.Join(s.Ready.Sandboxes[0].StateDir, "audit")
	verify := func(dir string) (string, int) {
		out, err := exec.Command(filepath.Join(programs, "controlplane"), "audit", "verify", dir,
			"--sandbox", string(s.Ready.Sandboxes[0].ID), "--state-dir", filepath.Join(s.Dir, "controlplane")).CombinedOutput()
		if exit, failed := err.(*exec.ExitError); failed {
			return string(out), exit.ExitCode()
		}
		must(t, err)
		return string(out), 0
	}
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for { // heads come within a second
		out, code := verify(dir)
		if code == 0 {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("the log of an honest agent: %s", out)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	must(t, err)
	log, err := os.ReadFile(files[0])
	must(t, err)
	for _, op := range []string{`"pty.create"`, `"lease"`} {
		if !bytes.Contains(log, []byte(op)) {
			t.Errorf("no %s in the log:\n%s", op, log)
		}
	}
	lines := bytes.SplitAfter(log, []byte("\n"))
	for name, tt := range map[string]struct {
		tampered []byte
		want     string
	}{
		"deleted":   {bytes.Join(append(append([][]byte{}, lines[:2]...), lines[3:]...), nil), "deleted"},
		"changed":   {bytes.Replace(log, []byte(`"pty.create"`), []byte(`"pty.signal"`), 1), "changed"},
		"reordered": {bytes.Join(append(append([][]byte{lines[0]}, lines[2], lines[1]), lines[3:]...), nil), "not in its place"},
		"cut off":   {bytes.Join(lines[:2], nil), "cut off"},
	} {
		copied := t.TempDir()
		must(t, os.WriteFile(filepath.Join(copied, filepath.Base(files[0])), tt.tampered, 0o600))
		out, code := verify(copied)
		for code == 0 && ctx.Err() == nil { // the head that tells of it comes within a second
			<-poll.C
			out, code = verify(copied)
		}
		if code != 1 || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit %d: %s", name, code, out)
		}
	}
}

// TestDashboards goes from a dashboard to its notes over the public origin.
func TestDashboards(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice, bob := s.Ready.User("alice"), s.Ready.User("bob")
	var made struct {
		Dashboard struct {
			ID string `json:"id"`
		} `json:"dashboard"`
	}
	must(t, call(ctx, http.StatusCreated, &made, http.MethodPost, alice.Base+"/dashboards", alice.Token, map[string]any{"name": "plans"}))
	url := alice.Base + "/dashboards/" + made.Dashboard.ID
	if status, _, err := Call(ctx, http.MethodGet, url, bob.Token, nil); err != nil || status != http.StatusNotFound {
		t.Errorf("bob sees what isn't shared: %d, %v", status, err)
	}
	must(t, call(ctx, http.StatusOK, nil, http.MethodPut, url+"/members/"+string(bob.ID), alice.Token, map[string]any{"role": "viewer"}))
	must(t, call(ctx, http.StatusOK, nil, http.MethodPost, bob.Base+"/invitations/"+made.Dashboard.ID+"/accept", bob.Token, nil))
	var item struct {
		Item struct {
			ID string `json:"id"`
		} `json:"item"`
	}
	note := map[string]any{"kind": "note", "body": map[string]any{"text": "ship it"}}
	must(t, call(ctx, http.StatusCreated, &item, http.MethodPost, url+"/items", alice.Token, note))
	must(t, call(ctx, http.StatusOK, nil, http.MethodGet, url+"/items/"+item.Item.ID, bob.Token, nil))
	if status, answer, err := Call(ctx, http.MethodPost, url+"/items", bob.Token, note); err != nil || status != http.StatusForbidden {
		t.Errorf("a viewer writes: %d %s %v", status, answer, err)
	}
	for _, base := range []string{alice.Base, s.Ready.ControlPlane.URL} {
		status, body, err := Call(ctx, http.MethodGet, base+"/openapi.json", "", nil)
		if err != nil || status != http.StatusOK || !bytes.Contains(body, []byte(`"openapi":`)) {
			t.Errorf("%s/openapi.json: %d, %v", base, status, err)
		}
	}
}
