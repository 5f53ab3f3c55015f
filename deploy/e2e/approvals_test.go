package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

var (
	approvalKills = flag.Int("approvals.kills", 20, "how often the relay is killed between a click and the agent")
	approvalSeed  = flag.Uint64("approvals.seed", 0, "seed of these kills; 0: a new one")
)

// An upstream is a web server that only the egress proxy can find.
type upstream struct {
	host  string // its name
	asked atomic.Int64
	addr  string
}

// newUpstream starts one that answers "hello <n>" to the n-th request.
func newUpstream(t *testing.T, host string) *upstream {
	u := &upstream{host: host}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello %d\n", u.asked.Add(1))
	}))
	t.Cleanup(server.Close)
	u.addr = server.Listener.Addr().String()
	return u
}

// flags are those by which a stack sends terminals through the egress proxy and
// knows where u is.
func (u *upstream) flags() []string {
	return []string{"--egress", "--outbound-hosts", u.host + "=" + u.addr}
}

// approvals asks for the approvals of the session.
func approvals(ctx context.Context, s *Stack, grant string) (protocol.ApprovalList, error) {
	var list protocol.ApprovalList
	err := call(ctx, http.StatusOK, &list, http.MethodGet,
		fmt.Sprintf("%s/sessions/%s/approvals", s.Ready.Relays[0].URL, s.Ready.SessionID), grant, nil)
	return list, err
}

// awaitPending waits until one approval is pending.
func awaitPending(ctx context.Context, t *testing.T, s *Stack, grant string) protocol.Approval {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		list, err := approvals(ctx, s, grant)
		last = err
		if err == nil {
			for _, a := range list.Approvals {
				if a.State == protocol.ApprovalPending {
					return a
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nothing is asked for: %v", last)
		}
	}
}

// TestApprovalInTheBrowser: in the shared terminal curl hangs at an unknown
// host, the approval appears in the browsers of those who may decide, "allow
// once" lets it through, and the next one asks again.
func TestApprovalInTheBrowser(t *testing.T) {
	up := newUpstream(t, "unknown.example")
	s := own(t, up.flags()...)
	ctx := within(t)
	grant, err := s.Ready.User("alice").Grant(ctx, s.Ready.SessionID)
	must(t, err)
	link := func(name string) string { return s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token }
	alice := openWindow(t, "approves", link("alice"), 1440, 900)
	alice.untilText("controller", "You have control")
	carol := openWindow(t, "cannot-approve", link("carol"), 390, 844)
	carol.untilText("controller", "alice has control")

	alice.typeLine("curl -ksS https://" + up.host + "; echo curl-ended-$?")
	first := awaitPending(ctx, t, s, grant)
	alice.untilText("approval-"+first.ID, up.host)
	alice.shoot("pending")
	if up.asked.Load() != 0 {
		t.Error("nobody has allowed it")
	}
	if shown := eval[bool](carol, `Boolean(document.querySelector('[data-testid^="approval-"]')?.checkVisibility())`); shown {
		t.Error("carol, who may not decide, is asked")
	}
	alice.click("btn-allow-once-" + first.ID)
	alice.untilScreen("\nhello 1")
	carol.untilScreen("curl-ended-0")

	alice.typeLine("curl -ksS https://" + up.host + "; echo curl-ended-$((10+$?))")
	second := awaitPending(ctx, t, s, grant)
	if second.ID == first.ID {
		t.Error("it is the same approval")
	}
	alice.click("btn-deny-" + second.ID)
	alice.until(`/curl-ended-\d*[1-9]/.test(window.fairlead.screenText(true))`)
	alice.untilScreen("curl-ended-66") // curl: 56, failure in receiving
	if n := up.asked.Load(); n != 1 {
		t.Errorf("%d requests came through", n)
	}
	alice.shoot("decided")

	// For good: a rule, and nobody is asked any more.
	alice.typeLine("curl -ksS https://" + up.host)
	third := awaitPending(ctx, t, s, grant)
	alice.click("btn-allow-always-" + third.ID)
	alice.untilScreen("\nhello 2")
	alice.typeLine("curl -ksS https://" + up.host)
	alice.untilScreen("\nhello 3")

	// Without a control plane nobody can sign a decision, which the page says.
	must(t, syscall.Kill(s.Ready.ControlPlane.PID, syscall.SIGKILL))
	alice.typeLine("curl -ksS https://other.example")
	fourth := awaitPending(ctx, t, s, grant)
	began := time.Now()
	alice.click("btn-allow-once-" + fourth.ID)
	alice.untilText("approval-"+fourth.ID, "Nothing can be decided")
	t.Logf("said after %v", time.Since(began))
	alice.shoot("undecidable")
}

// TestDecisionAcrossAKilledRelay: the relay is killed between a click and the
// agent, at any moment. The decision is applied exactly once, and nothing hangs.
func TestDecisionAcrossAKilledRelay(t *testing.T) {
	t.Parallel() // it mostly waits for relays
	seed := *approvalSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-approvals.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	up := newUpstream(t, "unknown.example")
	s := own(t, up.flags()...)
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*approvalKills)*5*time.Second)
	defer cancel()
	id := newPTY(t, s, "while :; do curl -ksS https://"+up.host+" || exit 1; done")
	// Who decides has a terminal open: a dead relay is noticed soon then.
	watching := s.Ready.User("alice").Watch(ctx, Viewing{Session: s.Ready.SessionID, PTY: id})
	defer watching.Close()
	retried := 0
	for trial := range *approvalKills {
		delay := time.Duration(rng.Int64N(int64(15 * time.Millisecond)))
		grant, err := grantSoon(ctx, s)
		must(t, err)
		asked := awaitPending(ctx, t, s, grant)
		if n := up.asked.Load(); n != int64(trial) {
			t.Fatalf("trial %d: %d requests have come through", trial, n)
		}
		pid := s.Ready.Relays[0].PID
		killed := make(chan error, 1)
		answer, tries, err := decide(ctx, s, asked, protocol.AllowOnce, func() {
			time.AfterFunc(delay, func() { killed <- syscall.Kill(pid, syscall.SIGKILL) })
		})
		must(t, err)
		must(t, <-killed)
		if a := answer.Approval; a.ID != asked.ID || a.State != protocol.ApprovalDecided || a.Decision != protocol.AllowOnce || !answer.Applied {
			t.Fatalf("trial %d: %+v", trial, answer)
		}
		if tries > 1 {
			retried++
		}
		awaitRelay(ctx, t, s, 0, pid)
		await(t, "the request", func() bool { return up.asked.Load() == int64(trial+1) })
	}
	grant, err := grantSoon(ctx, s)
	must(t, err)
	awaitPending(ctx, t, s, grant)
	list, err := approvals(ctx, s, grant)
	must(t, err)
	// One event that asks and one that decides for each, and one that asks.
	if list.Offset != uint64(2**approvalKills+1) {
		t.Errorf("%d events", list.Offset)
	}
	t.Logf("%d decisions applied once, %d of which had lost their first answer", *approvalKills, retried)
}

// A decisionAnswer is the answer of POST /sessions/{sid}/approvals/{aid}.
type decisionAnswer struct {
	Approval protocol.Approval `json:"approval"`
	Applied  bool              `json:"applied"`
}

// decide answers an approval as a browser does: what got no answer is sent again
// under the same key. clicked is called just before it is sent first.
func decide(ctx context.Context, s *Stack, a protocol.Approval, d protocol.Decision, clicked func()) (answer decisionAnswer, tries int, err error) {
	key := "decide-" + a.ID
	for {
		tries++
		var grant string
		if grant, err = grantSoon(ctx, s); err != nil {
			return answer, tries, err
		}
		if tries == 1 {
			clicked()
		}
		at := fmt.Sprintf("%s/sessions/%s/approvals/%s", s.Ready.Relays[0].URL, s.Ready.SessionID, a.ID)
		status, body, callErr := Call(ctx, http.MethodPost, at, grant,
			map[string]any{"kind": a.Kind, "revision": a.Revision, "decision": d}, "Idempotency-Key", key)
		switch {
		case callErr == nil && status == http.StatusOK:
			return answer, tries, json.Unmarshal(body, &answer)
		case callErr == nil && status != http.StatusServiceUnavailable && status != http.StatusBadGateway:
			return answer, tries, fmt.Errorf("status %d: %s", status, body)
		}
		if ctx.Err() != nil {
			return answer, tries, errors.Join(ctx.Err(), callErr)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// grantSoon buys a grant of alice's, from a relay that may be on its way back.
func grantSoon(ctx context.Context, s *Stack) (string, error) {
	for {
		grant, err := s.Ready.User("alice").Grant(ctx, s.Ready.SessionID)
		var cut net.Error
		if err == nil || !errors.As(err, &cut) && !errors.Is(err, io.ErrUnexpectedEOF) || ctx.Err() != nil {
			return grant, err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// TestRuleAnswersWhoWaits: a rule that is made while a connection is held decides
// about it, and whoever was asked need not answer any more.
func TestRuleAnswersWhoWaits(t *testing.T) {
	up := newUpstream(t, "unknown.example")
	s := own(t, up.flags()...)
	ctx := within(t)
	grant, err := s.Ready.User("alice").Grant(ctx, s.Ready.SessionID)
	must(t, err)
	base := fmt.Sprintf("%s/sessions/%s", s.Ready.Relays[0].URL, s.Ready.SessionID)
	for i, decision := range []protocol.Decision{protocol.DenyAlways, protocol.AllowAlways} {
		term := attach(t, s, "alice", newPTY(t, s, "curl -ksS https://"+up.host+"; echo curl-ended-$?; sleep 1000"))
		asked := awaitPending(ctx, t, s, grant)
		must(t, call(ctx, http.StatusOK, nil, http.MethodPost, base+"/egress/approve", grant, map[string]any{"domain": up.host, "decision": decision}))
		must(t, term.Expect(ctx, []string{"curl-ended-56", "curl-ended-0"}[i]))
		list, err := approvals(ctx, s, grant)
		must(t, err)
		if a := list.Approvals[0]; a.ID != asked.ID || a.State != protocol.ApprovalDecided || a.Decision.Allows() != decision.Allows() || a.UserID != s.Ready.Users["alice"].ID {
			t.Errorf("%s: it stands at %+v", decision, a)
		}
		must(t, call(ctx, http.StatusOK, nil, http.MethodGet, base+"/egress/allowlist", grant, nil))
		status, body, err := Call(ctx, http.MethodPost, base+"/egress/revoke", grant, map[string]any{"pattern": up.host})
		must(t, err)
		if status != http.StatusNoContent {
			t.Fatalf("revoke: status %d: %s", status, body)
		}
	}
}

// TestSandboxMetrics: what the sandbox does, as JSON and for Prometheus.
func TestSandboxMetrics(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	grant, err := s.Ready.User("carol").Grant(ctx, s.Ready.SessionID)
	must(t, err)
	id := newPTY(t, s, "while :; do :; done")
	url := fmt.Sprintf("%s/sessions/%s/metrics", s.Ready.Relays[0].URL, s.Ready.SessionID)
	var metrics protocol.SandboxMetrics
	await(t, "a busy process", func() bool {
		must(t, call(ctx, http.StatusOK, &metrics, http.MethodGet, url, grant, nil))
		return len(metrics.TopProcesses) > 0 && metrics.TopProcesses[0].PTYID == id && metrics.TopProcesses[0].CPUPercent > 1
	})
	if metrics.PTYCount < 2 || metrics.SessionCount != 1 || metrics.HeapBytes == 0 || metrics.MemTotal == 0 || metrics.UptimeMs == 0 || metrics.Revision == "" {
		t.Errorf("%+v", metrics)
	}
	status, text, err := Call(ctx, http.MethodGet, url+"?format=prometheus", grant, nil)
	must(t, err)
	for _, want := range []string{"fairlead_sandbox_terminals ", "fairlead_approvals_pending 0", "fairlead_egress_connections 0", "go_goroutines "} {
		if status != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("status %d, no %q", status, want)
		}
	}
	status, body, err := Call(ctx, http.MethodDelete, fmt.Sprintf("%s/sessions/%s/ptys/%s", s.Ready.Relays[0].URL, s.Ready.SessionID, id),
		mustGrant(ctx, t, s, "alice"), nil)
	if err != nil || status != http.StatusNoContent {
		t.Errorf("status %d: %s, %v", status, body, err)
	}
}

func mustGrant(ctx context.Context, t *testing.T, s *Stack, user string) string {
	t.Helper()
	grant, err := s.Ready.User(user).Grant(ctx, s.Ready.SessionID)
	must(t, err)
	return grant
}
