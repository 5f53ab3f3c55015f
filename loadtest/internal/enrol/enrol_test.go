package enrol

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const serverName = "control.test"

// A plane is a control plane that takes each invitation once, if its signature
// is for the connection.
type plane struct {
	t      *testing.T
	ca     string
	addr   string
	signer *jws.Signer

	mu    sync.Mutex
	used  map[string]bool
	busy  int // requests to refuse for the moment
	calls int
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{serverName},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	signer, err := jws.GenerateSigner()
	must(t, err)
	p := &plane{t: t, signer: signer, used: make(map[string]bool)}
	p.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	server := httptest.NewUnstartedServer(p)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS13}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	p.addr = server.Listener.Addr().String()
	return p
}

func (p *plane) invitation(n int) *protocol.Invitation {
	return &protocol.Invitation{
		SandboxID: protocol.SandboxID(fmt.Sprintf("sb_%d", n)), Token: fmt.Sprintf("inv_secret_%d", n),
		ControlPlane: protocol.EnrolledControlPlane{ServerName: serverName, CAPEM: p.ca},
		Relays:       []string{"127.0.0.1:1"}, RelayCAPEM: p.ca,
	}
}

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(kind protocol.Kind) {
		w.WriteHeader(kind.Status())
		json.NewEncoder(w).Encode(map[string]any{"error": protocol.Errorf(kind, "no").Body()})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	if p.busy > 0 {
		p.busy--
		refuse(protocol.KindTooMany)
		return
	}
	var req protocol.EnrolRequest
	if json.NewDecoder(r.Body).Decode(&req) != nil || r.URL.Path != enrolPath {
		refuse(protocol.KindInvalid)
		return
	}
	key, err := (&jws.Certificate{JWK: req.DeviceKey}).PublicKey()
	exporter, err2 := r.TLS.ExportKeyingMaterial(protocol.ExporterLabel, nil, exporterBytes)
	if err != nil || err2 != nil || !jws.VerifyDevice(key, protocol.EnrolTranscript(req.SandboxID, exporter), req.Signature) || p.used[req.Token] {
		refuse(protocol.KindUnauthenticated)
		return
	}
	p.used[req.Token] = true
	token, err := p.signer.SignCertificate(jws.Certificate{
		Subject: req.SandboxID, JWK: req.DeviceKey, IssuedAt: time.Now().Unix(), ExpiresAt: time.Now().Add(time.Hour).Unix(), ID: "crt_1",
	})
	jwks, err2 := jws.MarshalKeySet(p.signer)
	if err != nil || err2 != nil {
		p.t.Error(err, err2)
	}
	json.NewEncoder(w).Encode(protocol.Enrolment{
		SandboxID: req.SandboxID, Certificate: token, JWKS: jwks,
		ControlPlane: protocol.EnrolledControlPlane{ServerName: serverName, CAPEM: p.ca},
		Relays:       []string{"127.0.0.1:1"}, RelayCAPEM: p.ca,
	})
}

func TestMany(t *testing.T) {
	p := newPlane(t)
	p.busy = 3 // what is refused for the moment is tried again
	var invitations []*protocol.Invitation
	for n := range 20 {
		invitations = append(invitations, p.invitation(n))
	}
	progress := 0
	identities, err := Many(t.Context(), invitations, Options{ControlPlane: p.addr, AtOnce: 5, Progress: func(done, total int) {
		if progress++; done != progress || total != 20 {
			t.Errorf("progress %d of %d, want %d of 20", done, total, progress)
		}
	}})
	must(t, err)
	for n, i := range identities {
		if i.Enrolment.SandboxID != invitations[n].SandboxID || i.Device == nil {
			t.Errorf("identity %d is %+v", n, i.Enrolment)
		}
	}
	if progress != 20 {
		t.Errorf("told of %d", progress)
	}
}

func TestRefusedInvitationEndsEverything(t *testing.T) {
	p := newPlane(t)
	p.used["inv_secret_3"] = true
	var invitations []*protocol.Invitation
	for n := range 10 {
		invitations = append(invitations, p.invitation(n))
	}
	_, err := Many(t.Context(), invitations, Options{ControlPlane: p.addr, AtOnce: 1})
	if err == nil || !strings.Contains(err.Error(), "sb_3") || !strings.Contains(err.Error(), "AuthError") || strings.Contains(err.Error(), "inv_secret") {
		t.Errorf("error %v", err)
	}
	if p.calls > 5 {
		t.Errorf("%d requests after all", p.calls)
	}
}

func TestNobodyAnswers(t *testing.T) {
	p := newPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Many(ctx, []*protocol.Invitation{p.invitation(1)}, Options{ControlPlane: "127.0.0.1:1"}); err == nil {
		t.Error("enrolled by nobody")
	}
	if _, err := One(t.Context(), p.invitation(1), Options{ControlPlane: "127.0.0.1:1", Attempts: 1}); err == nil {
		t.Error("enrolled by nobody")
	}
	other := newPlane(t)
	if _, err := One(t.Context(), p.invitation(1), Options{ControlPlane: other.addr, Attempts: 1}); err == nil {
		t.Error("believed another control plane")
	}
}

func TestSavedIdentities(t *testing.T) {
	p := newPlane(t)
	identities, err := Many(t.Context(), []*protocol.Invitation{p.invitation(1), p.invitation(2)}, Options{ControlPlane: p.addr})
	must(t, err)
	dir := filepath.Join(t.TempDir(), "new")
	if list, err := Load(dir, time.Now()); err != nil || list != nil {
		t.Errorf("loaded %v, %v from nowhere", list, err)
	}
	must(t, Save(dir, identities))
	info, err := os.Stat(filepath.Join(dir, storeFile))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("everybody may read private keys: %v", info.Mode())
	}
	list, err := Load(dir, time.Now())
	must(t, err)
	if len(list) != 2 || list[1].Enrolment.SandboxID != "sb_2" || string(list[1].Device.PublicJWK()) != string(identities[1].Device.PublicJWK()) {
		t.Errorf("loaded %+v", list)
	}
	if list, err := Load(dir, time.Now().Add(time.Hour)); err != nil || len(list) != 0 {
		t.Errorf("loaded %d that have expired, %v", len(list), err)
	}
}

func TestReadInvitations(t *testing.T) {
	p := newPlane(t)
	one, err := json.MarshalIndent(p.invitation(1), "", "  ")
	must(t, err)
	line, err := json.Marshal(p.invitation(2))
	must(t, err)
	for text, want := range map[string]int{
		string(one): 1, string(line): 1, string(line) + "\n\n" + string(line) + "\n": 2, "": 0, "{}\n": 0, string(line) + "\nx": 0,
	} {
		file := filepath.Join(t.TempDir(), "invitations")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		list, err := ReadInvitations(file)
		if len(list) != want || (err == nil) != (want > 0) {
			t.Errorf("%d bytes: %d invitations, %v; want %d", len(text), len(list), err, want)
		}
		if err != nil && strings.Contains(err.Error(), "inv_secret") {
			t.Errorf("the error quotes a token: %v", err)
		}
	}
}

func TestAccount(t *testing.T) {
	answers := map[string]string{
		"session.create": `{"status":"ok","result":{"kind":"session.create","sessionId":"ses_1"}}`,
		"pty.create":     `{"status":"error","error":{"name":"TargetError","message":"no such session"}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Target map[string]string
			Op     map[string]string
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.Header.Get("Authorization") != "Bearer ut_1" || r.URL.Path != "/commands" {
			t.Errorf("asked for %s: %v", r.URL, err)
		}
		fmt.Fprint(w, answers[req.Op["kind"]])
	}))
	defer server.Close()
	a := Account{URL: server.URL + "/", Token: "ut_1", Client: server.Client()}
	if id, err := a.Session(t.Context(), "sb_1"); err != nil || id != "ses_1" {
		t.Errorf("session %q, %v", id, err)
	}
	if _, err := a.Terminal(t.Context(), "ses_1", "cat"); err == nil || !strings.Contains(err.Error(), "TargetError: no such session") {
		t.Errorf("terminal: %v", err)
	}
}

func FuzzParseStored(f *testing.F) {
	f.Add([]byte(`{"agents":[{"sandbox_id":"sb_1","certificate":"a.b.c","device_key":{}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseStored(data, time.Unix(0, 0))
		for _, i := range list {
			if err == nil && (i.Device == nil || i.Enrolment.Validate() != nil) {
				t.Fatalf("took %+v", i)
			}
		}
	})
}

func FuzzParseLines(f *testing.F) {
	f.Add("{}\n{\"token\":\"x\"}")
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := parseLines(strings.NewReader(text)); err == nil && len(list) == 0 {
			t.Fatal("nothing, and no error")
		}
	})
}
