package authority

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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/agenttest"
	"github.com/fairlead/fairlead/sandbox-agent/internal/rendezvous"
	"github.com/fairlead/fairlead/tunnel"
)

const token = "inv_0123456789abcdef"

// invite takes the enrolment away and writes an invitation to relays instead,
// which change may change.
func (w *world) invite(change func(*protocol.Invitation), relays ...string) EnrolOptions {
	w.t.Helper()
	must(w.t, os.Remove(w.file))
	i := protocol.Invitation{
		SandboxID: sandbox, Token: token, ControlPlane: w.Known(), Relays: relays, RelayCAPEM: w.CA.PEM,
	}
	if change != nil {
		change(&i)
	}
	data, err := json.Marshal(i)
	must(w.t, err)
	file := filepath.Join(w.dir, "invitation.json")
	must(w.t, os.WriteFile(file, data, 0o600))
	return EnrolOptions{Invitation: file, StateDir: w.dir, Enrolment: w.file, Log: w.log.Logger()}
}

// ignore is who wants to hear of no problems.
func ignore(protocol.Problem) {}

// acceptInvitations has the control plane enrol whoever has the token.
func (w *world) acceptInvitations() { w.Handle("POST /enrol", w.accept) }

func (w *world) accept(rw http.ResponseWriter, r *http.Request) {
	var req protocol.EnrolRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Token != token || req.SandboxID != sandbox ||
		!agenttest.Proven(r, req.DeviceKey, req.Signature, protocol.EnrolTranscript) {
		refuse(rw, http.StatusUnauthorized, "the invitation is not valid")
		return
	}
	json.NewEncoder(rw).Encode(w.Certified(req.DeviceKey, "crt_1", time.Now(), time.Hour))
}

// TestEnrol: an invitation becomes an enrolment, once, and its token is in no
// log.
func TestEnrol(t *testing.T) {
	w := newWorld(t)
	o := w.invite(nil, w.listen())
	w.acceptInvitations()
	must(t, Enrol(within(t), o, ignore))
	path := w.file
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	before, err := os.ReadFile(path)
	must(t, err)
	w.Handle("POST /enrol", func(http.ResponseWriter, *http.Request) { t.Error("enrolled again") })
	must(t, Enrol(within(t), o, ignore))
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the enrolment has changed: %v", err)
	}
	if at := w.open().Credentials.Expires(); at.Before(time.Now().Add(time.Minute)) {
		t.Errorf("it expires at %v", at)
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
	good := w.listen()
	hostile := w.listenRefusing(protocol.Errorf(protocol.KindUnauthenticated, "control plane: the invitation is not valid"))
	o := w.invite(nil, good)
	o.Relays = []string{gone, hostile, good, good} // tried as they are listed
	var asked atomic.Int32
	w.Handle("POST /enrol", func(rw http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			refuse(rw, http.StatusServiceUnavailable, "starting")
			return
		}
		w.accept(rw, r)
	})
	told := 0
	must(t, Enrol(within(t), o, func(p protocol.Problem) {
		if told++; p.Name != protocol.ProblemCertificate || !strings.HasPrefix(p.Message, "not enrolled yet: ") {
			t.Errorf("told %+v", p)
		}
	}))
	if told != 3 {
		t.Errorf("told %d problems", told)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
	for _, word := range []string{gone, hostile, "starting", "the invitation is not valid"} {
		if !strings.Contains(w.log.String(), word) {
			t.Errorf("the log doesn't say %q:\n%s", word, w.log)
		}
	}
}

// TestEnrolSpreads: an invitation's relays are tried in the sandbox's own order,
// the operator's as they are listed.
func TestEnrolSpreads(t *testing.T) {
	w := newWorld(t)
	list := []string{"relay-1.example:7443", "relay-2.example:7443", "relay-3.example:7443", "relay-4.example:7443"}
	o := w.invite(nil, list...)
	e, err := newEnrolling(o)
	must(t, err)
	if want := rendezvous.Order(sandbox, list); !slices.Equal(e.relays, want) || slices.Equal(want, list) {
		t.Errorf("tries %q, want %q", e.relays, want)
	}
	o.Relays = list
	e, err = newEnrolling(o)
	must(t, err)
	if !slices.Equal(e.relays, list) {
		t.Errorf("tries %q, listed are %q", e.relays, list)
	}
}

// listenRefusing starts a relay that refuses unregistered agents.
func (w *world) listenRefusing(err error) string {
	w.t.Helper()
	return w.CA.Listen(w.t, tunnel.ListenConfig{
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
		o := w.invite(nil, w.listen())
		w.Handle("POST /enrol", func(rw http.ResponseWriter, _ *http.Request) { refuse(rw, tt.status, tt.message) })
		err := Enrol(within(t), o, ignore)
		if err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), string(sandbox)) {
			t.Fatalf("%v", err)
		}
		if quoted := strings.Contains(tt.message, token); quoted == strings.Contains(err.Error(), tt.message) {
			t.Errorf("%v, told %q", err, tt.message)
		}
		if strings.Contains(err.Error()+w.log.String(), token) {
			t.Errorf("the token is told: %v\n%s", err, w.log)
		}
		if _, err := os.Stat(w.file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stored all the same: %v", err)
		}
	}
}

// TestEnrolTellsNoImpostor: who isn't the control plane of the invitation gets
// no token, and what isn't an enrolment of ours isn't stored.
func TestEnrolTellsNoImpostor(t *testing.T) {
	for what, change := range map[string]func(*world, *protocol.Invitation){
		"another authority": func(_ *world, i *protocol.Invitation) {
			i.ControlPlane.CAPEM = agenttest.NewAuthority(t).PEM
		},
		"another name": func(_ *world, i *protocol.Invitation) { i.ControlPlane.ServerName = "other.test" },
		"another sandbox": func(w *world, i *protocol.Invitation) {
			w.Handle("POST /enrol", func(rw http.ResponseWriter, r *http.Request) {
				var req protocol.EnrolRequest
				json.NewDecoder(r.Body).Decode(&req)
				e := w.Certified(req.DeviceKey, "crt_1", time.Now(), time.Hour)
				e.SandboxID = "sb_other"
				json.NewEncoder(rw).Encode(e)
			})
		},
		"another key": func(w *world, i *protocol.Invitation) {
			other, err := jws.GenerateDeviceKey()
			must(t, err)
			w.Handle("POST /enrol", func(rw http.ResponseWriter, _ *http.Request) {
				json.NewEncoder(rw).Encode(w.Certified(other.PublicJWK(), "crt_1", time.Now(), time.Hour))
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.Handle("POST /enrol", func(http.ResponseWriter, *http.Request) { t.Error("the token was told") })
			o := w.invite(func(i *protocol.Invitation) { change(w, i) }, w.listen())
			ctx, cancel := context.WithCancel(within(t))
			ended := make(chan error, 1)
			go func() { ended <- Enrol(ctx, o, ignore) }() // received below
			waitFor(t, "a failure", func() bool { return strings.Contains(w.log.String(), "not enrolled yet") })
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Enrol: %v", err)
			}
			if _, err := os.Stat(w.file); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("stored: %v", err)
			}
		})
	}
}

func TestBadInvitation(t *testing.T) {
	w := newWorld(t)
	o := w.invite(nil, "127.0.0.1:1")
	data, err := os.ReadFile(o.Invitation)
	must(t, err)
	for what, text := range map[string]string{
		"garbled":        "{",
		"empty":          "",
		"unknown member": strings.Replace(string(data), `"token"`, `"more":1,"token"`, 1),
		"too long":       strings.Repeat(" ", protocol.MaxEnrolmentBytes) + string(data),
	} {
		must(t, os.WriteFile(o.Invitation, []byte(text), 0o600))
		err := Enrol(within(t), o, ignore)
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, os.Remove(o.Invitation))
	if err := Enrol(within(t), o, ignore); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
