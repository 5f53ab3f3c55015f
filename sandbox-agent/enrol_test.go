package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

const token = "inv_0123456789abcdef"

// invite takes the enrolment away and writes an invitation instead, which
// change may change.
func (w *world) invite(change func(*protocol.Invitation)) {
	w.t.Helper()
	must(w.t, os.Remove(filepath.Join(w.cfg.StateDir, enrolmentFile)))
	i := protocol.Invitation{
		SandboxID: sandbox, Token: token,
		ControlPlane: protocol.EnrolledControlPlane{ServerName: serverName, CAPEM: w.caPEM},
		Relays:       w.cfg.Relays, RelayCAPEM: w.caPEM,
	}
	w.cfg.Relays = nil
	if change != nil {
		change(&i)
	}
	data, err := json.Marshal(i)
	must(w.t, err)
	w.cfg.Invitation = filepath.Join(w.cfg.StateDir, "invitation.json")
	must(w.t, os.WriteFile(w.cfg.Invitation, data, 0o600))
}

// certified returns an enrolment of a device key that is valid for so long.
func (w *world) certified(device json.RawMessage, id string, issued time.Time, life time.Duration) protocol.Enrolment {
	w.t.Helper()
	certificate, err := w.signer.SignCertificate(jws.Certificate{
		Subject: sandbox, JWK: device, IssuedAt: issued.Unix(), ExpiresAt: issued.Add(life).Unix(), ID: id,
	})
	must(w.t, err)
	return protocol.Enrolment{
		SandboxID: sandbox, Certificate: certificate,
		ControlPlane: protocol.EnrolledControlPlane{ServerName: serverName, CAPEM: w.caPEM},
		JWKS:         w.jwks, Relays: []string{"127.0.0.1:1"}, RelayCAPEM: w.caPEM,
	}
}

// proven reports whether signature is the device key's over the transcript of
// the connection.
func proven(r *http.Request, device json.RawMessage, signature []byte, transcript func(protocol.SandboxID, []byte) []byte) bool {
	key, err := (&jws.Certificate{JWK: device}).PublicKey()
	if err != nil {
		return false
	}
	exporter, err := r.TLS.ExportKeyingMaterial(protocol.ExporterLabel, nil, 32)
	return err == nil && jws.VerifyDevice(key, transcript(sandbox, exporter), signature)
}

// acceptInvitations has the control plane enrol whoever has the token.
func (w *world) acceptInvitations() {
	w.handle("POST /enrol", func(rw http.ResponseWriter, r *http.Request) {
		var req protocol.EnrolRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Token != token || req.SandboxID != sandbox ||
			!proven(r, req.DeviceKey, req.Signature, protocol.EnrolTranscript) {
			refuse(rw, http.StatusUnauthorized, "the invitation is not valid")
			return
		}
		json.NewEncoder(rw).Encode(w.certified(req.DeviceKey, "crt_1", time.Now(), time.Hour))
	})
}

// TestEnrol: an invitation becomes an enrolment, once, and its token is in no
// log.
func TestEnrol(t *testing.T) {
	w := newWorld(t)
	w.listen(welcome)
	w.invite(nil)
	w.acceptInvitations()
	must(t, Enrol(within(t), w.cfg))
	path := filepath.Join(w.cfg.StateDir, enrolmentFile)
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	before, err := os.ReadFile(path)
	must(t, err)
	w.handle("POST /enrol", func(http.ResponseWriter, *http.Request) { t.Error("enrolled again") })
	must(t, Enrol(within(t), w.cfg))
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the enrolment has changed: %v", err)
	}
	a := w.start()
	if c := a.holder.credential(); c.expires.Before(time.Now().Add(time.Minute)) {
		t.Errorf("it expires at %v", c.expires)
	}
	if strings.Contains(w.log.String(), token) {
		t.Error("the log has the token")
	}
}

// TestEnrolTriesAgain: relays and the control plane may be away, and may refuse
// for the moment; what a relay says of the invitation counts for nothing.
func TestEnrolTriesAgain(t *testing.T) {
	w := newWorld(t)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	gone := silent.LocalAddr().String()
	silent.Close()
	w.listen(welcome)
	good := w.cfg.Relays[0]
	hostile := w.listenRefusing(protocol.Errorf(protocol.KindUnauthenticated, "control plane: the invitation is not valid"))
	w.invite(func(i *protocol.Invitation) { i.Relays = []string{gone, hostile, good, good} })
	w.acceptInvitations()
	accept := w.routes["POST /enrol"] // nobody asks yet
	var asked atomic.Int32
	w.handle("POST /enrol", func(rw http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			refuse(rw, http.StatusServiceUnavailable, "starting")
			return
		}
		accept(rw, r)
	})
	must(t, Enrol(within(t), w.cfg))
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
	for _, word := range []string{gone, hostile, "starting", "the invitation is not valid"} {
		if !strings.Contains(w.log.String(), word) {
			t.Errorf("the log doesn't say %q:\n%s", word, w.log)
		}
	}
}

// listenRefusing starts a relay that refuses unregistered agents.
func (w *world) listenRefusing(err error) string {
	w.t.Helper()
	return w.listenWith(tunnel.ListenConfig{
		RelayID: "rl_hostile", Connect: func(context.Context, net.Addr) (net.Conn, error) { return nil, err },
	}).Addr().String()
}

// TestEnrolRefused: an invitation that the control plane refuses is the end,
// and nothing is stored.
func TestEnrolRefused(t *testing.T) {
	for _, tt := range []struct {
		status  int
		message string
	}{
		{http.StatusUnauthorized, "the invitation is not valid"},
		{http.StatusConflict, "the sandbox has another key"},
		{http.StatusUnauthorized, "we don't know " + token},
	} {
		w := newWorld(t)
		w.listen(welcome)
		w.invite(nil)
		w.handle("POST /enrol", func(rw http.ResponseWriter, _ *http.Request) { refuse(rw, tt.status, tt.message) })
		err := Enrol(within(t), w.cfg)
		if err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), string(sandbox)) {
			t.Fatalf("%v", err)
		}
		if quoted := strings.Contains(tt.message, token); quoted == strings.Contains(err.Error(), tt.message) {
			t.Errorf("%v, told %q", err, tt.message)
		}
		if strings.Contains(err.Error()+w.log.String(), token) {
			t.Errorf("the token is told: %v\n%s", err, w.log)
		}
		if _, err := os.Stat(filepath.Join(w.cfg.StateDir, enrolmentFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stored all the same: %v", err)
		}
	}
}

// TestEnrolTellsNoImpostor: who isn't the control plane of the invitation gets
// no token, and what isn't an enrolment of ours isn't stored.
func TestEnrolTellsNoImpostor(t *testing.T) {
	for what, change := range map[string]func(*world, *protocol.Invitation){
		"another authority": func(_ *world, i *protocol.Invitation) {
			i.ControlPlane.CAPEM = newWorld(t).caPEM
		},
		"another name": func(_ *world, i *protocol.Invitation) { i.ControlPlane.ServerName = "other.test" },
		"another sandbox": func(w *world, i *protocol.Invitation) {
			w.handle("POST /enrol", func(rw http.ResponseWriter, r *http.Request) {
				var req protocol.EnrolRequest
				json.NewDecoder(r.Body).Decode(&req)
				e := w.certified(req.DeviceKey, "crt_1", time.Now(), time.Hour)
				e.SandboxID = "sb_other"
				json.NewEncoder(rw).Encode(e)
			})
		},
		"another key": func(w *world, i *protocol.Invitation) {
			other, err := jws.GenerateDeviceKey()
			must(t, err)
			w.handle("POST /enrol", func(rw http.ResponseWriter, _ *http.Request) {
				json.NewEncoder(rw).Encode(w.certified(other.PublicJWK(), "crt_1", time.Now(), time.Hour))
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.listen(welcome)
			w.handle("POST /enrol", func(http.ResponseWriter, *http.Request) { t.Error("the token was told") })
			w.invite(func(i *protocol.Invitation) { change(w, i) })
			ctx, cancel := context.WithCancel(within(t))
			ended := make(chan error, 1)
			go func() { ended <- Enrol(ctx, w.cfg) }() // received below
			waitFor(t, "a failure", func() bool { return strings.Contains(w.log.String(), "not enrolled yet") })
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Enrol: %v", err)
			}
			if _, err := os.Stat(filepath.Join(w.cfg.StateDir, enrolmentFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("stored: %v", err)
			}
		})
	}
}

func TestBadInvitation(t *testing.T) {
	w := newWorld(t)
	w.invite(nil)
	data, err := os.ReadFile(w.cfg.Invitation)
	must(t, err)
	for what, text := range map[string]string{
		"garbled":        "{",
		"empty":          "",
		"unknown member": strings.Replace(string(data), `"token"`, `"more":1,"token"`, 1),
		"too long":       strings.Repeat(" ", protocol.MaxEnrolmentBytes) + string(data),
	} {
		must(t, os.WriteFile(w.cfg.Invitation, []byte(text), 0o600))
		err := Enrol(within(t), w.cfg)
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, os.Remove(w.cfg.Invitation))
	if err := Enrol(within(t), w.cfg); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
