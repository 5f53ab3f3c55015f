package sandboxapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A pair is one sandbox with a ledger and tunnels to several relays, and the
// control plane that signs for all.
type pair struct {
	t         *testing.T
	authority *relaytest.Authority

	mu     sync.Mutex
	signed map[string]protocol.CommandEnvelope // by idempotency key
	ledger map[protocol.CommandID]protocol.Result
	cut    func(*tunnel.Session) // called once, after a run and before its RESULT
}

// A relayNode is one relay: its routes and what it dispatches with.
type relayNode struct {
	mux        *http.ServeMux
	tunnels    *relaytest.Tunnels
	dispatcher *dispatch.Dispatcher
}

func newPair(t *testing.T) *pair {
	return &pair{
		t: t, authority: relaytest.NewAuthority(t),
		signed: map[string]protocol.CommandEnvelope{}, ledger: map[protocol.CommandID]protocol.Result{},
	}
}

// relay adds a relay that the sandbox has a tunnel to.
func (p *pair) relay() *relayNode {
	n := &relayNode{mux: http.NewServeMux(), tunnels: &relaytest.Tunnels{}}
	p.connect(n)
	plane := httptest.NewServer(http.HandlerFunc(p.sign))
	client := plane.Client()
	log := slog.New(slog.DiscardHandler)
	n.dispatcher = dispatch.New(dispatch.Options{Keys: p.authority.Keys, Tunnels: n.tunnels, Log: log})
	p.t.Cleanup(func() {
		n.dispatcher.Close()
		client.CloseIdleConnections()
		plane.Close()
	})
	(&API{
		Keys: p.authority.Keys, Tunnels: n.tunnels, Dispatcher: n.dispatcher, Revision: "r1", Log: log,
		Requests: reverseproxy.New(p.authority.Grants, prometheus.NewRegistry()),
		Signer:   &dispatch.Signer{URL: plane.URL, Client: client},
	}).Register(n.mux)
	return n
}

// connect gives the sandbox a tunnel to n.
func (p *pair) connect(n *relayNode) {
	agent, relay := tunneltest.Pair(p.t)
	relaytest.Answer(p.t, agent, func(in *tunnel.Incoming) {
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			return
		}
		defer stream.Close()
		if result, cut := p.execute(in.Open.Command); cut != nil {
			cut(agent)
		} else {
			protocol.Write(stream, result)
		}
	})
	n.tunnels.Connect(relay)
}

// sign signs one command for each key, ever.
func (p *pair) sign(w http.ResponseWriter, r *http.Request) {
	var req dispatch.SignRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		p.t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	env, known := p.signed[req.IdempotencyKey]
	if !known {
		env = p.authority.Command(func(c *jws.Command) { c.Target = req.Target })
		p.signed[req.IdempotencyKey] = env
	}
	relaytest.Signed(w, env)
}

// execute runs a command that the ledger doesn't have. It returns what cuts the
// tunnel, once.
func (p *pair) execute(token string) (protocol.Result, func(*tunnel.Session)) {
	c, err := p.authority.Keys.Command(context.Background(), token, jws.AudienceAgent)
	if err != nil {
		p.t.Error(err)
		return protocol.Result{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, done := p.ledger[c.CommandID]; !done {
		made := protocol.PTYID(fmt.Sprint("pty_", len(p.ledger)))
		p.ledger[c.CommandID] = relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: made})
	}
	cut := p.cut
	p.cut = nil
	return p.ledger[c.CommandID], cut
}

// create asks n for a terminal.
func (p *pair) create(n *relayNode, key string) *httptest.ResponseRecorder {
	_, token := p.authority.Grant(nil)
	r := httptest.NewRequest(http.MethodPost, "/sessions/ses_1/ptys", strings.NewReader(""))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Idempotency-Key", key)
	answer := httptest.NewRecorder()
	n.mux.ServeHTTP(answer, r)
	return answer
}

// A relay dies with the answer: the retry at another one makes no second
// terminal.
func TestARetryAtAnotherRelay(t *testing.T) {
	p := newPair(t)
	first, second := p.relay(), p.relay()
	p.cut = func(agent *tunnel.Session) {
		agent.Close()
		go first.dispatcher.Close() // the cleanup waits for it
	}
	if answer := p.create(first, "again"); answer.Code < 500 {
		t.Errorf("the relay that died: %d %s", answer.Code, answer.Body)
	}
	for range 2 {
		expect(t, p.create(second, "again"), http.StatusCreated, `"id":"pty_0"`)
	}
	if len(p.ledger) != 1 {
		t.Errorf("%d terminals", len(p.ledger))
	}
	expect(t, p.create(second, "another"), http.StatusCreated, `"id":"pty_1"`)
}

// A tunnel that dies and comes back in time is nobody's trouble.
func TestATunnelDiesInTheMiddle(t *testing.T) {
	p := newPair(t)
	n := p.relay()
	p.cut = func(agent *tunnel.Session) {
		agent.Close()
		p.connect(n)
	}
	expect(t, p.create(n, "key"), http.StatusCreated, `"id":"pty_0"`)
	if len(p.ledger) != 1 {
		t.Errorf("%d terminals", len(p.ledger))
	}
}

// 100 browsers press the same button.
func TestParallelRequestsWithOneKey(t *testing.T) {
	p := newPair(t)
	nodes := []*relayNode{p.relay(), p.relay()}
	var asking sync.WaitGroup
	for i := range 100 {
		asking.Go(func() { expect(t, p.create(nodes[i%2], "same"), http.StatusCreated, `"id":"pty_0"`) })
	}
	asking.Wait()
	if len(p.ledger) != 1 {
		t.Errorf("%d terminals", len(p.ledger))
	}
}
