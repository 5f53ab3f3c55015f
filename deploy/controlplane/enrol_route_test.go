package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// An agentConn is one TLS connection of a sandbox to the control plane.
type agentConn struct {
	t        *testing.T
	client   *http.Client
	url      string
	exporter []byte
}

// agentListener serves the second listener's routes over TLS; it ends with the
// test.
func (p *plane) agentListener() *httptest.Server {
	p.t.Helper()
	srv := httptest.NewUnstartedServer(p.server.agentHandler())
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	srv.StartTLS()
	p.t.Cleanup(srv.Close)
	return srv
}

// connect opens a connection of its own, which carries all requests.
func connect(t *testing.T, srv *httptest.Server) *agentConn {
	t.Helper()
	config := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName, config.NextProtos = "example.com", []string{"http/1.1"}
	conn, err := tls.Dial("tcp", srv.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	state := conn.ConnectionState()
	a := &agentConn{t: t, url: srv.URL}
	if a.exporter, err = state.ExportKeyingMaterial(protocol.ExporterLabel, nil, 32); err != nil {
		t.Fatal(err)
	}
	a.client = &http.Client{Transport: &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	t.Cleanup(a.client.CloseIdleConnections)
	return a
}

// post posts body as JSON and returns the answer.
func (a *agentConn) post(path string, body any, header ...string) (int, []byte) {
	a.t.Helper()
	data, ok := body.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(body); err != nil {
			a.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+path, bytes.NewReader(data))
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := a.client.Do(req)
	if err != nil {
		a.t.Errorf("%s: %v", path, err)
		return 0, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Errorf("%s: %v", path, err)
	}
	return res.StatusCode, answer
}

// A testSandbox is a sandbox with its device key and, once enrolled, certificate.
type testSandbox struct {
	id          protocol.SandboxID
	device      *jws.DeviceKey
	certificate string
}

func newTestSandbox(t *testing.T, id protocol.SandboxID) *testSandbox {
	t.Helper()
	device, err := jws.GenerateDeviceKey()
	if err != nil {
		t.Fatal(err)
	}
	return &testSandbox{id: id, device: device}
}

func (b *testSandbox) sign(t *testing.T, transcript []byte) []byte {
	t.Helper()
	signature, err := b.device.Sign(transcript)
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func (b *testSandbox) enrolRequest(t *testing.T, token string, exporter []byte) protocol.EnrolRequest {
	t.Helper()
	return protocol.EnrolRequest{
		SandboxID: b.id, Token: token, DeviceKey: b.device.PublicJWK(),
		Signature: b.sign(t, protocol.EnrolTranscript(b.id, exporter)),
	}
}

func (b *testSandbox) renewRequest(t *testing.T, exporter []byte) protocol.RenewRequest {
	t.Helper()
	return protocol.RenewRequest{
		Certificate: b.certificate, Signature: b.sign(t, protocol.RenewTranscript(b.id, exporter)),
	}
}

// invite invites a sandbox and returns its token.
func (p *plane) invite(id protocol.SandboxID, more func(*fleet.InviteConfig)) string {
	p.t.Helper()
	cert, _, _ := testCertificate(p.t, "ca")
	cfg := fleet.InviteConfig{
		Location: statedir.Location{StateDir: filepath.Join(p.dir, "state"), Database: p.database}, Sandbox: id, TTL: fleet.DefaultInvitationLife,
		Reach: fleet.Reach{CA: cert, ServerName: "control.fairlead.test", Relays: []string{"127.0.0.1:4433"}, RelayCA: cert},
		Out:   filepath.Join(p.t.TempDir(), "invitation.json"), Now: p.clock.Now,
	}
	if more != nil {
		more(&cfg)
	}
	if err := fleet.Invite(p.t.Context(), cfg); err != nil {
		p.t.Fatal(err)
	}
	if info, err := os.Stat(cfg.Out); err != nil || info.Mode().Perm() != 0o600 {
		p.t.Errorf("invitation file: %v, %v", info, err)
	}
	data, err := os.ReadFile(cfg.Out)
	if err != nil {
		p.t.Fatal(err)
	}
	invitation, err := protocol.ParseInvitation(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return invitation.Token
}

// enrolled returns a sandbox that has enrolled over srv.
func (p *plane) enrolled(srv *httptest.Server, id protocol.SandboxID) *testSandbox {
	p.t.Helper()
	b := newTestSandbox(p.t, id)
	a := connect(p.t, srv)
	status, answer := a.post("/enrol", b.enrolRequest(p.t, p.invite(id, nil), a.exporter))
	if status != http.StatusOK {
		p.t.Fatalf("enrol: %d %s", status, answer)
	}
	b.certificate = p.certificate(answer)
	return b
}

// certificate returns what an enrolment certifies, after checking the whole.
func (p *plane) certificate(answer []byte) string {
	p.t.Helper()
	e, err := protocol.ParseEnrolment(answer)
	if err != nil {
		p.t.Fatalf("%s: %v", answer, err)
	}
	set, err := jws.ParseKeySet(e.JWKS)
	if err != nil {
		p.t.Fatal(err)
	}
	cert, err := jws.NewKeys(set, jws.KeysOptions{Now: p.clock.Now}).Certificate(p.t.Context(), e.Certificate)
	if err != nil {
		p.t.Fatal(err)
	}
	if cert.Subject != e.SandboxID || cert.Expires().Sub(p.clock.Now()).Round(time.Minute) != fleet.DefaultCertificateLife {
		p.t.Errorf("certificate %+v", cert)
	}
	return e.Certificate
}

func TestEnrolOverTheNetwork(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	known, err := p.server.store.Fleet.Sandbox(t.Context(), "sb_1")
	if err != nil || string(known.DeviceJWK) != string(b.device.PublicJWK()) {
		t.Errorf("the store has %s, %v", known.DeviceJWK, err)
	}
	// Another device key isn't taken unless the invitation says so.
	other := newTestSandbox(t, "sb_1")
	a := connect(t, srv)
	if status, answer := a.post("/enrol", other.enrolRequest(t, p.invite("sb_1", nil), a.exporter)); status != http.StatusConflict {
		t.Errorf("another key: %d %s", status, answer)
	}
	token := p.invite("sb_1", func(cfg *fleet.InviteConfig) { cfg.Replace = true })
	if status, answer := a.post("/enrol", other.enrolRequest(t, token, a.exporter)); status != http.StatusOK {
		t.Errorf("another key with --replace: %d %s", status, answer)
	}
	if status, answer := a.post("/certificate", b.renewRequest(t, a.exporter)); status != http.StatusUnauthorized {
		t.Errorf("the replaced key renews: %d %s", status, answer)
	}
}

// TestEnrolRefused: whatever is wrong with an invitation, the answer is the same.
func TestEnrolRefused(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := newTestSandbox(t, "sb_new")
	token := p.invite("sb_new", nil)
	elsewhere := connect(t, srv)
	var first []byte
	for _, tt := range []struct {
		name  string
		spoil func(req *protocol.EnrolRequest, exporter []byte)
	}{
		{"unknown token", func(req *protocol.EnrolRequest, _ []byte) { req.Token = "inv_" + strings.Repeat("a", 26) }},
		{"empty token", func(req *protocol.EnrolRequest, _ []byte) { req.Token = "" }},
		{"another sandbox", func(req *protocol.EnrolRequest, exporter []byte) {
			*req = newTestSandbox(t, "sb_other").enrolRequest(t, token, exporter)
		}},
		{"no signature", func(req *protocol.EnrolRequest, _ []byte) { req.Signature = nil }},
		{"signature of another connection", func(req *protocol.EnrolRequest, _ []byte) {
			req.Signature = b.sign(t, protocol.EnrolTranscript(b.id, elsewhere.exporter))
		}},
		{"signature to renew", func(req *protocol.EnrolRequest, exporter []byte) {
			req.Signature = b.sign(t, protocol.RenewTranscript(b.id, exporter))
		}},
		{"another device key", func(req *protocol.EnrolRequest, _ []byte) {
			req.DeviceKey = newTestSandbox(t, "sb_new").device.PublicJWK()
		}},
	} {
		a := connect(t, srv)
		req := b.enrolRequest(t, token, a.exporter)
		tt.spoil(&req, a.exporter)
		status, answer := a.post("/enrol", req)
		if first == nil {
			first = answer
		}
		if status != http.StatusUnauthorized || string(answer) != string(first) {
			t.Errorf("%s: %d %s, want %s", tt.name, status, answer, first)
		}
	}
	a := connect(t, srv)
	p.clock.Advance(fleet.DefaultInvitationLife)
	if status, answer := a.post("/enrol", b.enrolRequest(t, token, a.exporter)); status != http.StatusUnauthorized || string(answer) != string(first) {
		t.Errorf("expired: %d %s", status, answer)
	}
	token = p.invite("sb_new", nil)
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		if status, answer := a.post("/enrol", b.enrolRequest(t, token, a.exporter)); status != want {
			t.Errorf("use %d: %d %s, want %d", i+1, status, answer, want)
		}
	}
	for _, malformed := range []string{`{}`, `{"sandbox_id":"a b"}`, `{"sandbox_id":"sb_new","device_key":{},"token":"x","signature":""}`} {
		if status, answer := a.post("/enrol", []byte(malformed)); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", malformed, status, answer)
		}
	}
	if strings.Contains(p.log.String(), token) {
		t.Error("the log holds an invitation")
	}
}

// TestCase13EnrolmentTokenInParallel uses one invitation 50 times at once.
func TestCase13EnrolmentTokenInParallel(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	token := p.invite("sb_once", nil)
	statuses := make(chan int, 50)
	var group sync.WaitGroup
	for range cap(statuses) {
		a, b := connect(t, srv), newTestSandbox(t, "sb_once")
		group.Go(func() {
			status, _ := a.post("/enrol", b.enrolRequest(t, token, a.exporter))
			statuses <- status
		})
	}
	group.Wait()
	close(statuses)
	count := make(map[int]int)
	for status := range statuses {
		count[status]++
	}
	if count[http.StatusOK] != 1 || count[http.StatusUnauthorized] != 49 {
		t.Errorf("statuses %v, want one 200 and 49 401", count)
	}
}

func TestRenew(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	p.clock.Advance(fleet.DefaultCertificateLife - time.Second)
	a, elsewhere := connect(t, srv), connect(t, srv)
	for name, req := range map[string]protocol.RenewRequest{
		"signature of another connection": {Certificate: b.certificate, Signature: b.sign(t, protocol.RenewTranscript(b.id, elsewhere.exporter))},
		"signature to enrol":              {Certificate: b.certificate, Signature: b.sign(t, protocol.EnrolTranscript(b.id, a.exporter))},
		"another key's signature":         {Certificate: b.certificate, Signature: newTestSandbox(t, "sb_1").sign(t, protocol.RenewTranscript(b.id, a.exporter))},
		"no certificate":                  {Signature: b.sign(t, protocol.RenewTranscript(b.id, a.exporter))},
		"a grant":                         {Certificate: p.grant(aliceToken, `{"session_id":"ses_1"}`), Signature: b.sign(t, protocol.RenewTranscript(b.id, a.exporter))},
	} {
		if status, answer := a.post("/certificate", req); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	status, answer := a.post("/certificate", b.renewRequest(t, a.exporter))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	old := *b
	b.certificate = p.certificate(answer)
	p.clock.Advance(time.Second + protocol.ClockSkew + time.Second)
	if status, answer := a.post("/certificate", old.renewRequest(t, a.exporter)); status != http.StatusUnauthorized {
		t.Errorf("expired: %d %s", status, answer)
	}
	if err := p.server.store.Fleet.RevokeSandbox(t.Context(), "sb_1", p.clock.Now()); err != nil {
		t.Fatal(err)
	}
	if status, answer := a.post("/certificate", b.renewRequest(t, a.exporter)); status != http.StatusUnauthorized {
		t.Errorf("revoked: %d %s", status, answer)
	}
}

// TestRenewAfterRevokedKey: a sandbox whose certificate was signed by a key
// that was revoked gets another one, since it proves its own key and the store
// knows the certificate. Whoever stole the signing key gets nothing by it.
func TestRenewAfterRevokedKey(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	stolen := p.server.keys.Signer()
	if _, err := RevokeKey(filepath.Join(p.dir, "state"), stolen.Kid(), true, p.clock.Now); err != nil {
		t.Fatal(err)
	}
	if _, err := p.server.keys.Keys().Certificate(t.Context(), b.certificate); err == nil {
		t.Fatal("the certificate is believed")
	}
	a := connect(t, srv)

	// Whoever has the stolen key certifies a key of their own.
	thief := newTestSandbox(t, "sb_1")
	for _, id := range []string{"crt_forged", p.certificateID(b.certificate, stolen)} {
		forged, err := stolen.SignCertificate(jws.Certificate{
			Subject: "sb_1", JWK: thief.device.PublicJWK(), ID: id,
			IssuedAt: p.clock.Now().Unix(), ExpiresAt: p.clock.Now().Unix() + 3600,
		})
		if err != nil {
			t.Fatal(err)
		}
		thief.certificate = forged
		if status, answer := a.post("/certificate", thief.renewRequest(t, a.exporter)); status != http.StatusUnauthorized {
			t.Errorf("forged: %d %s", status, answer)
		}
	}
	status, answer := a.post("/certificate", b.renewRequest(t, a.exporter))
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	p.certificate(answer)
	p.clock.Advance(fleet.DefaultCertificateLife + protocol.ClockSkew + time.Second)
	if status, answer := a.post("/certificate", b.renewRequest(t, a.exporter)); status != http.StatusUnauthorized {
		t.Errorf("expired: %d %s", status, answer)
	}
}

// certificateID returns the jti of a certificate that signer signed.
func (p *plane) certificateID(token string, signer *jws.Signer) string {
	p.t.Helper()
	data, err := jws.MarshalKeySet(signer)
	if err != nil {
		p.t.Fatal(err)
	}
	set, err := jws.ParseKeySet(data)
	if err != nil {
		p.t.Fatal(err)
	}
	cert, err := jws.NewKeys(set, jws.KeysOptions{Now: p.clock.Now}).Certificate(p.t.Context(), token)
	if err != nil {
		p.t.Fatal(err)
	}
	return cert.ID
}

func TestRenewTooOften(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	a := connect(t, srv)
	for range 8 {
		if status, answer := a.post("/certificate", b.renewRequest(t, a.exporter)); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	if status, answer := a.post("/certificate", b.renewRequest(t, a.exporter)); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, answer)
	}
	p.clock.Advance(fleet.DefaultCertificateLife / 16)
	if status, answer := a.post("/certificate", b.renewRequest(t, a.exporter)); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
}

func TestInviteInvalid(t *testing.T) {
	cert, _, _ := testCertificate(t, "ca")
	for _, tt := range []struct {
		name  string
		spoil func(cfg *fleet.InviteConfig) string // returns what the error must name
	}{
		{"sandbox", func(cfg *fleet.InviteConfig) string { cfg.Sandbox = "a b"; return "sandbox_id" }},
		{"life", func(cfg *fleet.InviteConfig) string { cfg.TTL = 0; return "lives" }},
		{"long life", func(cfg *fleet.InviteConfig) string { cfg.TTL = fleet.MaxInvitationLife + 1; return "lives" }},
		{"relay", func(cfg *fleet.InviteConfig) string { cfg.Relays = []string{"nowhere"}; return `"nowhere"` }},
		{"CA", func(cfg *fleet.InviteConfig) string { cfg.CA = "missing.pem"; return "missing.pem" }},
		{"dashboard", func(cfg *fleet.InviteConfig) string { cfg.Dashboard = "dash_none"; return "dashboard" }},
		{"one and many", func(cfg *fleet.InviteConfig) string { cfg.Count = 1; return "either one sandbox" }},
		{"none", func(cfg *fleet.InviteConfig) string { cfg.Sandbox = ""; return "from 1 to" }},
		{"too many", func(cfg *fleet.InviteConfig) string {
			cfg.Sandbox, cfg.Count = "", fleet.MaxInvitations+1
			return "from 1 to"
		}},
		{"one dashboard", func(cfg *fleet.InviteConfig) string {
			cfg.Sandbox, cfg.Count, cfg.Dashboard = "", 2, "dash_1"
			return "a dashboard has one"
		}},
		{"owner of one", func(cfg *fleet.InviteConfig) string { cfg.Owner = "usr_1"; return "new sandboxes alone" }},
		{"nobody knows where", func(cfg *fleet.InviteConfig) string { cfg.Reach = fleet.Reach{}; return "nobody has been invited" }},
	} {
		cfg := fleet.InviteConfig{
			Location: statedir.Location{StateDir: filepath.Join(t.TempDir(), "state")}, Sandbox: "sb_1", TTL: time.Hour,
			Reach: fleet.Reach{CA: cert, ServerName: "control.test", Relays: []string{"127.0.0.1:4433"}, RelayCA: cert},
			Out:   filepath.Join(t.TempDir(), "invitation.json"),
		}
		want := tt.spoil(&cfg)
		err := fleet.Invite(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", tt.name, err, want)
		}
		if left, err := os.ReadDir(filepath.Dir(cfg.Out)); err != nil || len(left) > 0 {
			t.Errorf("%s: something was written: %v, %v", tt.name, left, err)
		}
	}
}

// TestInviteUnwritable: an invitation that can't be written doesn't make the
// earlier one void.
func TestInviteUnwritable(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	token := p.invite("sb_1", nil)
	for _, out := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing", "invitation.json")} {
		err := fleet.Invite(t.Context(), fleet.InviteConfig{
			Location: statedir.Location{StateDir: filepath.Join(p.dir, "state"), Database: p.database}, Sandbox: "sb_1", TTL: fleet.DefaultInvitationLife,
			Out: out, Now: p.clock.Now,
		})
		if _, ok := errors.AsType[*fs.PathError](err); !ok {
			t.Errorf("error %v", err)
		}
	}
	a := connect(t, srv)
	if status, answer := a.post("/enrol", newTestSandbox(t, "sb_1").enrolRequest(t, token, a.exporter)); status != http.StatusOK {
		t.Errorf("enrol: %d %s", status, answer)
	}
}
