package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// signal is the only tool that the SDK knows of. Our tools are looked up for
// each request and caller. Adding signal again makes the SDK tell a client that
// its list is outdated.
var signal = &sdk.Tool{Name: "fairlead_signal", InputSchema: json.RawMessage(`{"type":"object"}`)}

// A listing is a comparable digest of a caller's tools.
type listing struct {
	known bool // false: never computed
	count int
	sum   uint64
}

var seed = maphash.MakeSeed()

// tools returns what caller may call.
func (s *Server) tools(caller toolbox.Caller) []toolbox.Tool {
	var all []toolbox.Tool
	seen := make(map[string]bool)
	for _, set := range s.opts.Sets {
		for _, t := range set.Tools(caller) {
			if !seen[t.Name] && (t.Needs == "" || caller.Allows(caller.PTY, t.Needs)) {
				seen[t.Name] = true
				all = append(all, t)
			}
		}
	}
	return all
}

// find returns caller's tool called name.
func (s *Server) find(caller toolbox.Caller, name string) (toolbox.Tool, bool) {
	for _, set := range s.opts.Sets {
		for _, t := range set.Tools(caller) {
			if t.Name == name && (t.Needs == "" || caller.Allows(caller.PTY, t.Needs)) {
				return t, true
			}
		}
	}
	return toolbox.Tool{}, false
}

func listingOf(tools []toolbox.Tool) listing {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, t := range tools {
		h.WriteString(t.Name)
		h.WriteByte(0)
		h.WriteString(t.Description)
		h.WriteByte(0)
		h.Write(t.InputSchema)
		h.WriteByte(0)
	}
	return listing{known: true, count: len(tools), sum: h.Sum64()}
}

// announce tells the clients whose tools have changed since the last check.
func (s *Server) announce() {
	type look struct {
		owner  *owner
		caller toolbox.Caller
	}
	var looks []look
	s.mu.Lock()
	for _, o := range s.owners {
		if s.changed[scope{o.key.session, o.key.pty}] || s.changed[scope{session: o.key.session}] {
			looks = append(looks, look{o, o.caller()})
		}
	}
	clear(s.changed)
	s.mu.Unlock()
	for _, l := range looks {
		now := listingOf(s.tools(l.caller))
		s.mu.Lock()
		listed, reported := l.owner.listed, l.owner.reported
		l.owner.listed, l.owner.reported = now, now
		s.mu.Unlock()
		if listed.known && listed != now {
			s.push(l.owner)
		}
		if reported != now && l.owner.key.user == "" {
			s.opts.Terminals.NoteTools(l.owner.key.session, l.owner.key.pty, reported.count, now.count)
		}
	}
}

// push tells all clients of o that their list of tools is outdated.
func (s *Server) push(o *owner) {
	s.mu.Lock()
	servers := make([]*sdk.Server, 0, len(o.sessions)+1)
	for _, x := range o.sessions {
		servers = append(servers, x.mcp)
	}
	if o.shared != nil {
		servers = append(servers, o.shared)
	}
	s.mu.Unlock()
	for _, server := range servers {
		server.AddTool(signal, refuseSignal)
		s.metrics.pushed.Inc()
	}
}

func refuseSignal(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	return nil, unknownTool(signal.Name)
}

func unknownTool(name string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", name)}
}

// newServer returns a server for the session id, or for requests without a
// session. The end of ctx cancels its calls.
func (s *Server) newServer(ctx context.Context, id string) *sdk.Server {
	opts := &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{ListChanged: true}},
		GetSessionID: func() string { return id },
		// Each caller sees its own tools: no proxy may share them.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	}
	if s.opts.adjust != nil {
		s.opts.adjust(opts)
	}
	server := sdk.NewServer(&sdk.Implementation{Name: Name, Version: s.opts.Version}, opts)
	if s.opts.extend != nil {
		s.opts.extend(server)
	}
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(call context.Context, method string, req sdk.Request) (sdk.Result, error) {
			call, cancel := context.WithCancel(call)
			defer cancel()
			stop := context.AfterFunc(ctx, cancel)
			defer stop()
			return s.receive(call, method, req, next)
		}
	})
	return server
}

// receive answers requests about tools and passes the others to next.
func (s *Server) receive(ctx context.Context, method string, req sdk.Request, next sdk.MethodHandler) (sdk.Result, error) {
	switch req := req.(type) {
	case *sdk.ListToolsRequest:
		x, err := exchangeOf(req.Extra)
		if err != nil {
			return nil, err
		}
		result, err := next(ctx, method, req)
		if listed, ok := result.(*sdk.ListToolsResult); ok && err == nil {
			listed.Tools = s.describe(x.caller, listed.Tools)
		}
		return result, err
	case *sdk.CallToolRequest:
		x, err := exchangeOf(req.Extra)
		if err != nil {
			return nil, err
		}
		tool, ok := s.find(x.caller, req.Params.Name)
		if !ok {
			s.metrics.called("", resultUnknown, 0)
			return next(ctx, method, req)
		}
		defer x.sink.beat()()
		return convert(s.call(ctx, tool, x.caller, req.Params.Arguments)), nil
	}
	return next(ctx, method, req)
}

// describe returns the tools that a client sees: caller's, and others that the
// SDK has.
func (s *Server) describe(caller toolbox.Caller, others []*sdk.Tool) []*sdk.Tool {
	all := []*sdk.Tool{}
	for _, t := range s.tools(caller) {
		all = append(all, &sdk.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema})
	}
	for _, t := range others {
		if t.Name != signal.Name {
			all = append(all, t)
		}
	}
	return all
}

// call runs a tool. Its result holds no secret.
func (s *Server) call(ctx context.Context, tool toolbox.Tool, caller toolbox.Caller, args json.RawMessage) (result protocol.ToolResult) {
	start := time.Now()
	defer func() {
		if reason := recover(); reason != nil {
			s.opts.Log.Error("a tool panicked", "tool", tool.Name, "stack", string(debug.Stack()))
			result = toolbox.Failure("the tool failed")
		}
		outcome := resultOK
		if result.IsError {
			outcome = resultError
		}
		s.metrics.called(tool.Name, outcome, time.Since(start))
	}()
	args, err := s.schemas.check(tool.InputSchema, args)
	if err == nil {
		result, err = tool.Call(ctx, caller, args)
	}
	if err != nil {
		result = toolbox.Failure(err.Error())
	}
	result.Content = slices.Clone(result.Content) // it may be the tool's own
	for i, c := range result.Content {
		if c.Text != "" {
			result.Content[i].Text = string(s.opts.Secrets.Mask([]byte(c.Text)))
		}
	}
	return result
}

// convert converts a result to the SDK's type.
func convert(r protocol.ToolResult) *sdk.CallToolResult {
	result := &sdk.CallToolResult{IsError: r.IsError, Content: make([]sdk.Content, 0, len(r.Content))}
	for _, c := range r.Content {
		if c.Type == "image" {
			result.Content = append(result.Content, &sdk.ImageContent{Data: c.Data, MIMEType: c.MIMEType})
		} else {
			result.Content = append(result.Content, &sdk.TextContent{Text: c.Text})
		}
	}
	return result
}

// An exchange is one request of a client.
type exchange struct {
	// Static after construction.
	caller toolbox.Caller
	owner  *owner
	sink   *sink // for streamable HTTP

	// Guarded by Server.mu.
	large bool // its body is large
}

// exchangeKey is where the SDK carries the exchange from a request to the
// message handlers, whose context is the session's.
const exchangeKey = "fairlead.exchange"

func exchangeOf(extra *sdk.RequestExtra) (*exchange, error) {
	if extra != nil && extra.TokenInfo != nil {
		if x, ok := extra.TokenInfo.Extra[exchangeKey].(*exchange); ok {
			return x, nil
		}
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request came another way"}
}

// carry returns the exchange as token info for the SDK.
func (x *exchange) carry() *auth.TokenInfo {
	return &auth.TokenInfo{Extra: map[string]any{exchangeKey: x}}
}
