package controlplane

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// operatorsRelay is the one that [plane.invite] names.
const operatorsRelay = "127.0.0.1:4433"

// registerTunnel registers a relay's tunnel, with more members of the request.
func (p *plane) registerTunnel(id, credential, tunnel, more string) {
	p.t.Helper()
	p.want(call{"PUT", "/internal/relays/" + id, credential,
		`{"url":"http://127.0.0.1:1","tunnel":"` + tunnel + `","public_origin":"https://relay.example"` + more + `}`, nil},
		http.StatusOK, "")
}

// toldRelays returns the relays of an enrolment.
func (p *plane) toldRelays(status int, answer []byte) []string {
	p.t.Helper()
	if status != http.StatusOK {
		p.t.Fatalf("%d %s", status, answer)
	}
	e, err := protocol.ParseEnrolment(answer)
	if err != nil {
		p.t.Fatal(err)
	}
	return e.Relays
}

// enrolRelays enrols b and returns the relays that it is told.
func (p *plane) enrolRelays(srv *httptest.Server, b *testSandbox) []string {
	p.t.Helper()
	a := connect(p.t, srv)
	status, answer := a.post("/enrol", b.enrolRequest(p.t, p.invite(b.id, nil), a.exporter))
	b.certificate = p.certificate(answer)
	return p.toldRelays(status, answer)
}

// TestEnrolRelays: whoever enrols is told of the registered relays in the order
// of their ids, whichever registered last, and of the operator's behind them.
func TestEnrolRelays(t *testing.T) {
	p := newPlane(t)
	srv := p.agentListener()
	if got := p.enrolRelays(srv, newTestSandbox(t, "sb_1")); !slices.Equal(got, []string{operatorsRelay}) {
		t.Errorf("before any relay registered: %q", got)
	}
	want := []string{"one.example:443", "two.example:443", operatorsRelay}
	p.registerTunnel("rl_1", relayToken, want[0], "")
	p.clock.Advance(time.Second)
	p.registerTunnel("rl_2", relay2Token, want[1], "")
	if got := p.enrolRelays(srv, newTestSandbox(t, "sb_2")); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	p.clock.Advance(time.Second)
	p.registerTunnel("rl_1", relayToken, want[0], "")
	if got := p.enrolRelays(srv, newTestSandbox(t, "sb_3")); !slices.Equal(got, want) {
		t.Errorf("rl_1 registered last: %q, want %q", got, want)
	}
}

// TestRenewRelays: each renewal tells of the relays as they are then. More steps
// than 8 would be too many renewals.
func TestRenewRelays(t *testing.T) {
	const one, two, moved = "one.example:443", "two.example:443", "moved.example:443"
	p := newPlane(t)
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	a := connect(t, srv)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"one comes", func() { p.registerTunnel("rl_1", relayToken, one, "") }, []string{one, operatorsRelay}},
		{"another comes", func() { p.registerTunnel("rl_2", relay2Token, two, "") }, []string{one, two, operatorsRelay}},
		{"one moves", func() { p.registerTunnel("rl_1", relayToken, moved, "") }, []string{moved, two, operatorsRelay}},
		{"both behind one address", func() { p.registerTunnel("rl_1", relayToken, two, "") }, []string{two, operatorsRelay}},
		{"one is the operator's", func() { p.registerTunnel("rl_1", relayToken, operatorsRelay, "") }, []string{operatorsRelay, two}},
		{"one drains", func() { p.registerTunnel("rl_2", relay2Token, two, `,"draining":true`) }, []string{operatorsRelay}},
		{"it came back and the other is silent", func() {
			p.clock.Advance(relays.Life + time.Second)
			p.registerTunnel("rl_2", relay2Token, two, "")
		}, []string{two, operatorsRelay}},
		{"it is removed", func() {
			if err := p.server.store.Fleet.RemoveRelay(t.Context(), "rl_2"); err != nil {
				t.Error(err)
			}
		}, []string{operatorsRelay}},
	} {
		step.do()
		if got := p.toldRelays(a.post("/certificate", b.renewRequest(t, a.exporter))); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		p.clock.Advance(time.Millisecond)
	}
}

// noRelays is a store that can't be read.
type noRelays struct{}

func (noRelays) Relays(context.Context, time.Time) ([]store.Relay, error) {
	return nil, errors.New("the disk is gone")
}

// TestRelaysUnknown: a sandbox gets its certificate when the control plane can't
// tell which relays there are.
func TestRelaysUnknown(t *testing.T) {
	p := newPlane(t)
	p.registerTunnel("rl_1", relayToken, "one.example:443", "")
	broken := relays.New(noRelays{}, p.server.clock, nil)
	t.Cleanup(broken.Close)
	p.server.fleet.Relays = broken
	srv := p.agentListener()
	b := newTestSandbox(t, "sb_1")
	if got := p.enrolRelays(srv, b); !slices.Equal(got, []string{operatorsRelay}) {
		t.Errorf("enrol: %q", got)
	}
	a := connect(t, srv)
	if got := p.toldRelays(a.post("/certificate", b.renewRequest(t, a.exporter))); !slices.Equal(got, []string{operatorsRelay}) {
		t.Errorf("renew: %q", got)
	}
	const warning = `level=WARN msg="a sandbox is told of the operator's relays alone" error="the disk is gone"`
	if n := strings.Count(p.log.String(), warning); n != 2 {
		t.Errorf("%d warnings in %s", n, p.log)
	}
}
