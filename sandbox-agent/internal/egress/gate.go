package egress

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// browserPTY stands for a session's browser where the proxy wants a terminal's
// name. No terminal has it: ids don't begin so.
const browserPTY protocol.PTYID = "-browser"

// GateOptions say how a Gate works.
type GateOptions struct {
	Sandbox  protocol.SandboxID
	On       bool // terminals go through the proxy where their session doesn't say
	Isolated bool // terminals have users of their own, who can be kept to the proxy
	Rules    *Rules
	Proxy    *Proxy
	Static   []string // hosts that the operator has given addresses, for people to see
	Log      *slog.Logger
}

// A Gate is the way of a sandbox to the network: it sends terminals and browsers
// to the proxy, and has the kernel keep their users to it. It is safe for
// concurrent use.
type Gate struct {
	// Static after construction.
	opts GateOptions

	// Guarded by mu.
	mu       sync.Mutex
	enforcer *Enforcer                       // made when it is first needed
	browsers map[protocol.SessionID]*url.URL // the proxy as browsers use it, with their credentials
}

var _ interface {
	feature.Router
	feature.Operator
	feature.Starter
	feature.Ender
	feature.SessionEnder
	feature.Runner
	io.Closer
} = (*Gate)(nil)

// NewGate returns a Gate that serves once it runs.
func NewGate(o GateOptions) *Gate {
	return &Gate{opts: o, browsers: make(map[protocol.SessionID]*url.URL)}
}

// Routes serves the rules of a session.
func (g *Gate) Routes(mux *http.ServeMux) {
	route.GetJSON(mux, "egress/allowlist", protocol.CapApprove, func(session protocol.SessionID) any { return g.shown(session) })
}

// shown is what people see of a session's rules.
func (g *Gate) shown(session protocol.SessionID) protocol.EgressRules {
	allow, deny := g.opts.Rules.List(session)
	rules := protocol.EgressRules{
		State: protocol.EgressOff, Defaults: g.opts.Rules.Defaults(), User: allow, Denied: deny, Static: g.opts.Static,
	}
	if g.opts.Rules.Enabled(session) {
		rules.State, rules.Why = g.enforcement()
	}
	return rules
}

// Operations implements [feature.Operator]. A new session only says whether its
// terminals go through the proxy: it exists as soon as the control plane signs
// for it.
func (g *Gate) Operations() feature.Operations { return Operations(g.opts.Rules) }

// A Switch notes whether the terminals of a session go through the proxy. [Rules]
// is one.
type Switch interface {
	SetEnabled(session protocol.SessionID, on *bool) error
}

// Operations are those on how sessions reach the network.
func Operations(s Switch) feature.Operations {
	return feature.Operations{
		op.KindSessionCreate: feature.Do(func(_ context.Context, c *jws.Command, body *op.SessionCreate) (protocol.OpResult, error) {
			if body.Egress == nil {
				return feature.Done(c), nil
			}
			return feature.Done(c), s.SetEnabled(c.Target.SessionID, body.Egress)
		}),
	}
}

// TerminalStarts implements [feature.Starter]. Whoever makes a terminal can ask
// for the proxy, but can't get around it.
func (g *Gate) TerminalStarts(start *feature.Start) (err error) {
	if asked := start.Create.Egress; !g.opts.Rules.Enabled(start.Session) && (asked == nil || !*asked) {
		return nil
	}
	if start.Egress, err = g.confine(start.UID); err != nil {
		return err
	}
	start.Env = append(start.Env, g.opts.Proxy.Environ(start.Session, start.PTY, start.UID, rand.Text())...)
	return nil
}

// TerminalEnded implements [feature.Ender].
func (g *Gate) TerminalEnded(t feature.Terminal) {
	g.opts.Proxy.Forget(t.Session, t.PTY)
	g.free(t.UID)
}

// SessionEnded implements [feature.SessionEnder].
func (g *Gate) SessionEnded(session protocol.SessionID) error {
	g.mu.Lock()
	delete(g.browsers, session)
	g.mu.Unlock()
	g.opts.Proxy.Forget(session, browserPTY)
	return g.opts.Rules.Delete(session)
}

// Confine keeps a user, that of a session's browser, to the proxy where the
// session goes through it, until free is called.
func (g *Gate) Confine(session protocol.SessionID, uid int) (free func(), err error) {
	if !g.opts.Rules.Enabled(session) {
		return func() {}, nil
	}
	if _, err := g.confine(uid); err != nil {
		return nil, err
	}
	return func() { g.free(uid) }, nil
}

// BrowserProxy returns the proxy for a session's browser, nil when the session
// goes out directly.
func (g *Gate) BrowserProxy(session protocol.SessionID) *url.URL {
	if !g.opts.Rules.Enabled(session) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.browsers[session]
	if at == nil {
		at = g.opts.Proxy.admit(caller{session, browserPTY, -1}, rand.Text())
		g.browsers[session] = at
	}
	return at
}

// confine keeps a user to the proxy as far as that can be done, and says how far.
// Where it should be possible and fails there is an error: better no program than
// one that gets out.
func (g *Gate) confine(uid int) (protocol.EgressState, error) {
	state, _ := g.enforcement()
	if uid <= 0 || state != protocol.EgressEnforced {
		return state, nil
	}
	if err := g.kernel().Add(uid); err != nil {
		return state, protocol.Fault(protocol.KindUnavailable, err)
	}
	return state, nil
}

// free lets a user go, who may never have been confined.
func (g *Gate) free(uid int) {
	g.mu.Lock()
	enforcer := g.enforcer
	g.mu.Unlock()
	if uid <= 0 || enforcer == nil {
		return
	}
	if err := enforcer.Remove(uid); err != nil {
		g.opts.Log.Warn("a user stays confined", "uid", uid, "err", err)
	}
}

// enforcement returns how far users are kept to the proxy, and why not further.
func (g *Gate) enforcement() (protocol.EgressState, string) {
	if !g.opts.Isolated {
		return protocol.EgressAdvisory, "terminals run as the agent's own user"
	}
	return g.kernel().Status()
}

// kernel returns the enforcer. The first call has the kernel prepared.
func (g *Gate) kernel() *Enforcer {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.enforcer == nil {
		g.enforcer = NewEnforcer(g.opts.Sandbox)
	}
	return g.enforcer
}

// Status returns how far terminals are kept to the proxy where their session
// doesn't say, and why not further.
func (g *Gate) Status() (protocol.EgressState, string) {
	if !g.opts.On {
		return protocol.EgressOff, ""
	}
	return g.enforcement()
}

// Run implements [feature.Runner]: it serves the proxy.
func (g *Gate) Run(ctx context.Context) {
	if err := g.opts.Proxy.Run(ctx); err != nil && ctx.Err() == nil {
		g.opts.Log.Error("the egress proxy has ended", "err", err)
	}
}

// Close frees all users. Their programs must have ended.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.enforcer == nil {
		return nil
	}
	return g.enforcer.Close()
}
