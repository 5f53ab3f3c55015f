package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/agenttest"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/uplink"
	"github.com/fairlead/fairlead/tunnel"
)

// TestStatusFile: it says when the agent is ready, with whom, and what is
// wrong; a relay hears the same.
func TestStatusFile(t *testing.T) {
	w := newWorld(t)
	w.enrolFor(time.Now(), time.Hour)
	long := time.Now().Add(-2 * DefaultKeysMaxAge)
	must(t, os.Chtimes(filepath.Join(w.cfg.StateDir, authority.EnrolmentFile), long, long))
	var away atomic.Bool
	away.Store(true)
	w.Handle(agenttest.KeysRoute, func(rw http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			agenttest.Refuse(rw, http.StatusServiceUnavailable, "away")
			return
		}
		rw.Write(w.Enrolment("").JWKS)
	})
	w.cfg.StatusFile = filepath.Join(w.cfg.StateDir, "status.json")
	l := w.listen(welcome)
	a, err := New(w.cfg)
	must(t, err)
	w.runUntilEnd(a)
	said := func(what string, until func(Status) bool) {
		t.Helper()
		waitFor(t, what, func() bool {
			var s Status
			data, err := os.ReadFile(w.cfg.StatusFile)
			if err != nil {
				return false
			}
			must(t, json.Unmarshal(data, &s))
			return until(s)
		})
	}
	accept := func() *tunnel.Session {
		t.Helper()
		session, err := l.Accept(within(t))
		must(t, err)
		w.Connect(session)
		return session
	}
	hasKeys := func(p protocol.Problem) bool { return p.Name == protocol.ProblemKeys && p.Message != "" }
	session := accept()
	said("a problem", func(s Status) bool {
		return !s.Ready && slices.ContainsFunc(s.Problems, hasKeys) && len(s.Relays) == 1 &&
			s.Relays[0] == uplink.RelayStatus{ID: "rl_1", Address: w.cfg.Relays[0], Primary: true, Carrier: tunnel.CarrierQUIC} &&
			s.CertificateExpiresAt.Equal(a.authority.Credentials.Expires())
	})
	for _, what := range []string{"a STATUS with it", "a STATUS at the next registration"} {
		waitFor(t, what, func() bool {
			status, _, _ := session.Status()
			return slices.ContainsFunc(status.Problems, hasKeys)
		})
		session.CloseWith(protocol.Errorf(protocol.KindRestarting, "again"))
		session = accept()
	}
	away.Store(false)
	session.CloseWith(protocol.Errorf(protocol.KindRestarting, "again"))
	session = accept()
	said("ready", func(s Status) bool { return s.Ready && s.Problems != nil && len(s.Problems) == 0 && len(s.Relays) == 1 })
	waitFor(t, "a STATUS without problems", func() bool {
		status, said, _ := session.Status()
		return said && len(status.Problems) == 0
	})
	l.Close()
	said("no relay", func(s Status) bool { return !s.Ready && len(s.Relays) == 0 })
}

// TestFound26StatusFromTheStart: what a killed agent left in the status file is
// gone before the next one has heard from anybody, here a relay that is silent.
func TestFound26StatusFromTheStart(t *testing.T) {
	w := newWorld(t)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	w.cfg.Invitation = filepath.Join(w.cfg.StateDir, "invitation.json")
	must(t, os.Remove(filepath.Join(w.cfg.StateDir, authority.EnrolmentFile)))
	invitation, err := json.Marshal(protocol.Invitation{
		SandboxID: sandbox, Token: "inv_0123456789abcdef", ControlPlane: w.Known(),
		Relays: []string{silent.LocalAddr().String()}, RelayCAPEM: w.CA.PEM,
	})
	must(t, err)
	w.write("invitation.json", string(invitation))
	w.cfg.StatusFile = filepath.Join(w.cfg.StateDir, "status.json")
	w.write("status.json", `{"ready":true,"problems":[],"relays":[{"id":"rl_1"}]}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, w.cfg) }()
	_, _, err = silent.ReadFrom(make([]byte, 2048)) // it asks to be enrolled
	must(t, err)
	var s Status
	data, err := os.ReadFile(w.cfg.StatusFile)
	must(t, err)
	must(t, json.Unmarshal(data, &s))
	if s.Ready || len(s.Relays) != 0 {
		t.Errorf("the file says %s", data)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestDamagedLedger: the agent starts and its terminals work, commands are
// refused, and it says so.
func TestDamagedLedger(t *testing.T) {
	w := newWorld(t)
	must(t, os.Mkdir(filepath.Join(w.cfg.StateDir, "ledger"), 0o700))
	w.write("ledger/commands.journal", "nonsense\n")
	w.listen(welcome)
	a, err := New(w.cfg)
	must(t, err)
	w.runUntilEnd(a)
	waitFor(t, "a tunnel", func() bool { return len(a.tunnels.Status()) == 1 })
	if s := a.status.health.status(time.Now()); s.Ready || len(s.Problems) != 1 || s.Problems[0].Name != protocol.ProblemLedger {
		t.Errorf("%+v", s)
	}
	if _, err := a.host.Create(within(t), "ses_1", "pty_1", op.PTYCreate{Command: "true"}); err != nil {
		t.Errorf("no terminal: %v", err)
	}
	token, err := w.Signer.SignCommand(jws.Command{
		Audience: jws.AudienceAgent, CommandID: "cmd_1", TraceID: "tr_1", IssuedAt: time.Now().UnixMilli(), TTLMs: 30_000,
		Target: protocol.CommandTarget{SandboxID: sandbox, SessionID: "ses_1", PTYID: "pty_1"},
		Op:     json.RawMessage(`{"kind":"pty.close"}`),
	})
	must(t, err)
	var told protocol.ExecutionCallback
	must(t, json.Unmarshal(a.link.Arrive()(within(t), token).Callback, &told))
	if told.Status != protocol.StatusError || told.Error == nil || told.Error.Name != "InternalError" {
		t.Errorf("the command: %+v", told)
	}
}
