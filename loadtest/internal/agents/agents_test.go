package agents

import (
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
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

// Agents that never get in say why.
func TestWhyNobodyIsThere(t *testing.T) {
	nobody, err := net.ListenPacket("udp", "127.0.0.1:0") // answers nothing; over TCP nothing is there
	must(t, err)
	defer nobody.Close()
	dir := t.TempDir()
	must(t, enrol.Save(dir, []enrol.Identity{identity(t)}))
	spec, err := json.Marshal(Spec{Identities: dir, Last: 1, Relays: []string{nobody.LocalAddr().String()}})
	must(t, err)
	w, err := New(t.Context(), &generator.Job{Spec: spec, Of: 1, Rec: measure.NewRecorder()})
	must(t, err)
	defer w.Close()
	for why := ""; why == ""; {
		arg, err := json.Marshal(Wait{At: time.Now(), Within: 50 * time.Millisecond})
		must(t, err)
		answer, err := w.Do(t.Context(), OrderConnect, arg)
		must(t, err)
		back := answer.(Back)
		if back.Agents != 1 || len(back.After) != 0 {
			t.Fatalf("%+v", back)
		}
		why = back.Why
	}
}

// identity returns a sandbox of no control plane.
func identity(t *testing.T) enrol.Identity {
	t.Helper()
	signer, err := jws.GenerateSigner()
	must(t, err)
	device, err := jws.GenerateDeviceKey()
	must(t, err)
	keys, err := jws.MarshalKeySet(signer)
	must(t, err)
	now := time.Now()
	certificate, err := signer.SignCertificate(jws.Certificate{
		Subject: "sb_1", JWK: device.PublicJWK(), IssuedAt: now.Unix(), ExpiresAt: now.Add(time.Hour).Unix(), ID: "crt_1",
	})
	must(t, err)
	ca := authority()
	return enrol.Identity{Device: device, Enrolment: &protocol.Enrolment{
		ControlPlane: protocol.EnrolledControlPlane{ServerName: "control.test", CAPEM: ca}, SandboxID: "sb_1", Certificate: certificate, JWKS: keys, Relays: []string{"relay.test:1"}, RelayCAPEM: ca,
	}}
}

// authority returns one that has certified no relay.
func authority() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}
