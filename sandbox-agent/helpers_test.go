package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/agenttest"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sandbox = agenttest.Sandbox

// must, within and waitFor are short for what agenttest has.
var must, within, waitFor = agenttest.Must, agenttest.Within, agenttest.WaitFor

// A world is what an agent deals with: its directories, and a control plane
// and a relay of the test's own.
type world struct {
	*agenttest.ControlPlane
	t   *testing.T
	cfg Config
	log *agenttest.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // terminals' users pass through
	must(t, os.Chmod(dir, 0o755))
	w := &world{ControlPlane: agenttest.NewControlPlane(t), t: t, log: &agenttest.Log{}}
	w.cfg = Config{
		StateDir: filepath.Join(dir, "state"), Workspace: filepath.Join(dir, "workspace"), Homes: filepath.Join(dir, "homes"),
		BrokerListen: "127.0.0.1:0", EgressListen: "127.0.0.1:0", MCPListen: "127.0.0.1:0",
		Revision: "rev1", Logger: w.log.Logger(),
		patience: protocol.HandshakeTimeout, // a slow machine has no relay that was killed
	}
	must(t, os.Mkdir(w.cfg.StateDir, 0o700))
	w.enrol(w.Enrolment("a.b.c"))
	return w
}

// enrol writes an enrolment.
func (w *world) enrol(e protocol.Enrolment) {
	w.t.Helper()
	data, err := json.Marshal(e)
	must(w.t, err)
	must(w.t, os.WriteFile(filepath.Join(w.cfg.StateDir, authority.EnrolmentFile), data, 0o600))
}

// enrolWith writes an enrolment that change has changed.
func (w *world) enrolWith(change func(*protocol.Enrolment)) {
	e := w.Enrolment("a.b.c")
	change(&e)
	w.enrol(e)
}

// start makes an agent, which ends with the test.
func (w *world) start() *Agent {
	w.t.Helper()
	a, err := New(w.cfg)
	must(w.t, err)
	w.t.Cleanup(a.close)
	return a
}

// listen starts a relay that lets admit decide, as the agent's only one.
func (w *world) listen(admit func(*tunnel.Registration) error) *tunnel.Listener {
	w.t.Helper()
	l := w.listenAs("rl_1", "https://one.example", admit)
	w.cfg.Relays = []string{l.Addr().String()}
	return l
}

// listenAs starts a relay of which the agent isn't told.
func (w *world) listenAs(id protocol.RelayID, origin string, admit func(*tunnel.Registration) error) *tunnel.Listener {
	w.t.Helper()
	return w.CA.Listen(w.t, tunnel.ListenConfig{
		RelayID: id, Origin: origin,
		Admit:   func(_ context.Context, r *tunnel.Registration) error { return admit(r) },
		Connect: func(ctx context.Context, _ net.Addr) (net.Conn, error) { return w.Dial(ctx) },
	})
}

func welcome(*tunnel.Registration) error { return nil }
