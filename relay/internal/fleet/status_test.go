package fleet

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestProblems: what an agent says of itself is listed and counted, until it
// says otherwise.
func TestProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		agent, relay := w.mustDial(w.sandbox("sb_a"))
		w.mustDial(w.sandbox("sb_b"))
		say(t, agent, relay, primary(1))
		report := func(problems ...protocol.Problem) {
			if err := agent.SendStatus(protocol.Status{Problems: problems}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		counts := func(want string) {
			t.Helper()
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(w.fleet)
			if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		}
		report(protocol.Problem{Name: protocol.ProblemLedger, Message: "damaged"},
			protocol.Problem{Name: "made up"}, protocol.Problem{Name: "another"})
		if s := w.fleet.List()[0]; len(s.Problems) != 3 || s.Problems[0].Message != "damaged" || !s.Primary {
			t.Errorf("%+v", s)
		}
		const sandboxes = `# HELP fairlead_sandboxes Connected sandboxes, by the role of their tunnel.
# TYPE fairlead_sandboxes gauge
fairlead_sandboxes{role="primary"} 1
fairlead_sandboxes{role="standby"} 0
fairlead_sandboxes{role="unknown"} 1
# HELP fairlead_sandbox_problems Connected sandboxes that report a problem, by its name.
# TYPE fairlead_sandbox_problems gauge
fairlead_sandbox_problems{problem="audit"} 0
fairlead_sandbox_problems{problem="certificate"} 0
fairlead_sandbox_problems{problem="keys"} 0
`
		counts(sandboxes + "fairlead_sandbox_problems{problem=\"ledger\"} 1\nfairlead_sandbox_problems{problem=\"other\"} 1\n")
		report()
		if s := w.fleet.List()[0]; s.Problems == nil || len(s.Problems) != 0 {
			t.Errorf("%+v", s)
		}
		counts(sandboxes + "fairlead_sandbox_problems{problem=\"ledger\"} 0\nfairlead_sandbox_problems{problem=\"other\"} 0\n")
	})
}

// TestRevokedCertificate: the tunnel of a sandbox whose certificate is void
// ends, it isn't let in again, and nobody else is touched.
func TestRevokedCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.sandbox("sb_a")
		a.certificate = w.certify(a, "crt_a")
		agent, _ := w.mustDial(a)
		b := w.sandbox("sb_b")
		_, relayB := w.mustDial(b)
		w.revoked.Apply(&jws.Revocations{
			Number: 1, Certificates: []jws.RevokedCertificate{{ID: "crt_a", ExpiresAt: time.Now().Add(time.Hour).Unix()}},
		})
		<-agent.Done()
		if protocol.KindOf(agent.Err()) != protocol.KindUnauthenticated || !strings.Contains(agent.Err().Error(), "revoked") {
			t.Errorf("the tunnel ended with %v", agent.Err())
		}
		w.refuses(a.again(2, "instance2"), protocol.KindUnauthenticated, "revoked")
		w.holds("sb_b", relayB)
		renewed := a.again(3, "instance3")
		renewed.certificate = w.certify(a, "crt_new")
		_, relay := w.mustDial(renewed)
		w.holds("sb_a", relay)
	})
}

// certify returns another certificate for the key of s.
func (w *world) certify(s *sandbox, id string) string {
	w.t.Helper()
	now := time.Now()
	certificate, err := w.authority.Signer.SignCertificate(jws.Certificate{
		Subject: s.id, JWK: s.key.PublicJWK(), IssuedAt: now.Unix(), ExpiresAt: now.Add(time.Hour).Unix(), ID: id,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return certificate
}
