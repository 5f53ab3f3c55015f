package mcp

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// itemsTool is the tool that GET mcp/items calls.
const itemsTool = "list_items"

// unknownAgent is the agent's name if the hook names none.
const unknownAgent = "unknown"

// A handler answers an admitted caller.
type handler func(w http.ResponseWriter, r *http.Request, x *exchange)

// An answer writes a refusal.
type answer func(w http.ResponseWriter, err error)

// Loopback returns the handler of the loopback listener, for programs of
// terminals.
func (s *Server) Loopback() http.Handler {
	mux := http.NewServeMux()
	add := func(pattern string, inPath bool, refuse answer, next handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			caller, err := s.admit(r, inPath)
			if err != nil {
				w.Header().Set("Connection", "close") // connections are for callers with a secret
			}
			s.serve(w, r, caller, err, refuse, next)
		})
	}
	add("/sessions/{sid}/mcp", false, s.refuse, s.serveMCP)
	add("GET /sessions/{sid}/mcp/tools", false, s.refusePlain, s.listTools)
	add("POST /sessions/{sid}/mcp/tools/call", false, s.refusePlain, s.callTool)
	add("GET /sessions/{sid}/mcp/items", false, s.refusePlain, s.listItems)
	add("POST /sessions/{sid}/ptys/{pid}/agent-stopped", true, s.refuseBody, s.agentStopped)
	add("POST /sessions/{sid}/ptys/{pid}/agent-started", true, s.refuseBody, s.agentReports(s.opts.Terminals.AgentStarted))
	add("POST /sessions/{sid}/ptys/{pid}/agent-ready", true, s.refuseBody, s.agentReports(s.opts.Terminals.AgentReady))
	if s.opts.Plugins != nil {
		add("POST /sessions/{sid}/ptys/{pid}/plugins", true, s.refuseBody, s.registerPlugin)
	}
	add("GET /sessions/{sid}/ptys/{pid}/scrollback", true, s.refuseBody, s.scrollback)
	return mux
}

// Routes adds the routes for people, who use relays, to mux.
func (s *Server) Routes(mux *http.ServeMux) {
	add := func(pattern string, refuse answer, next handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			caller, err := s.granted(r)
			s.serve(w, r, caller, err, refuse, next)
		})
	}
	add("/sessions/{sid}/mcp", s.refuse, s.serveMCP)
	add("GET /sessions/{sid}/mcp/tools", s.refusePlain, s.listTools)
	add("POST /sessions/{sid}/mcp/tools/call", s.refusePlain, s.callTool)
	add("GET /sessions/{sid}/mcp/items", s.refusePlain, s.listItems)
}

// serve calls next for a request, unless err refuses it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, caller toolbox.Caller, err error, refuse answer, next handler) {
	if err != nil {
		refuse(w, err)
		return
	}
	x, err := s.enter(caller)
	if err != nil {
		refuse(w, err)
		return
	}
	defer s.leave(x)
	next(w, r, x)
}

// refusePlain answers as seed 001's tool routes do.
func (s *Server) refusePlain(w http.ResponseWriter, err error) {
	status, reason, _ := explain(err)
	s.metrics.refused.WithLabelValues(reason).Inc()
	writeJSON(w, status, map[string]any{"error": true, "message": err.Error()})
}

// refuseBody answers as all other routes do.
func (s *Server) refuseBody(w http.ResponseWriter, err error) {
	status, reason, name := explain(err)
	s.metrics.refused.WithLabelValues(reason).Inc()
	writeJSON(w, status, map[string]protocol.ErrorBody{"error": {Message: err.Error(), Name: name}})
}

func (s *Server) listTools(w http.ResponseWriter, _ *http.Request, x *exchange) {
	list := protocol.ToolList{Tools: []protocol.Tool{}}
	for _, t := range s.tools(x.caller) {
		list.Tools = append(list.Tools, t.Tool)
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) callTool(w http.ResponseWriter, r *http.Request, x *exchange) {
	var call protocol.ToolCall
	if err := s.decode(x, w, r, &call); err != nil {
		s.refusePlain(w, err)
		return
	}
	result, err := s.callByName(r, x, call)
	if err != nil {
		s.refusePlain(w, err)
		return
	}
	writeJSON(w, http.StatusOK, result)
}

// listItems answers with the items of the session's dashboard.
func (s *Server) listItems(w http.ResponseWriter, r *http.Request, x *exchange) {
	result, err := s.callByName(r, x, protocol.ToolCall{Name: itemsTool})
	if err != nil {
		s.refusePlain(w, err)
		return
	}
	var text strings.Builder
	for _, c := range result.Content {
		text.WriteString(c.Text)
	}
	switch {
	case result.IsError:
		s.refusePlain(w, protocol.Errorf(protocol.KindUpstream, "%s", text.String()))
	case json.Valid([]byte(text.String())):
		writeJSON(w, http.StatusOK, json.RawMessage(text.String()))
	default:
		writeJSON(w, http.StatusOK, result)
	}
}

// callByName calls a tool for a plain request. The call ends with the request.
func (s *Server) callByName(r *http.Request, x *exchange, call protocol.ToolCall) (protocol.ToolResult, error) {
	tool, ok := s.find(x.caller, call.Name)
	if !ok {
		s.metrics.called("", resultUnknown, 0)
		return protocol.ToolResult{}, protocol.Errorf(protocol.KindNotFound, "there is no tool %.64q here", call.Name)
	}
	ctx, cancel := contextOf(r, x.owner)
	defer cancel()
	return s.call(ctx, tool, x.caller, call.Arguments), nil
}

// decode reads the body of a plain request.
func (s *Server) decode(x *exchange, w http.ResponseWriter, r *http.Request, v any) error {
	body, err := s.readBody(x, w, r)
	if err != nil {
		return err
	}
	if depth, _ := measure(body); depth > protocol.MaxMCPDepth {
		return protocol.Errorf(protocol.KindInvalid, "the body nests deeper than %d", protocol.MaxMCPDepth)
	}
	if json.Unmarshal(body, v) != nil {
		return protocol.Errorf(protocol.KindInvalid, "the body is not the JSON object that is wanted here")
	}
	return nil
}

func (s *Server) agentStopped(w http.ResponseWriter, r *http.Request, x *exchange) {
	var report protocol.AgentStoppedReport
	err := s.decode(x, w, r, &report)
	if err == nil {
		if report.Agent == "" {
			report.Agent = unknownAgent
		}
		switch {
		case report.Reason == "":
			report.Reason = protocol.StopComplete
		case !report.Reason.Known():
			report.Reason = protocol.StopUnknown
		}
		report.LastMessage = s.lastOf(report.LastMessage)
		if len(report.Agent) > protocol.MaxAgentNameBytes {
			err = protocol.Errorf(protocol.KindInvalid, "the agent's name is too long")
		}
	}
	if err == nil {
		s.opens(x, report.AgentReported)
		err = s.opts.Terminals.AgentTurn(x.caller.Session, x.caller.PTY, protocol.AgentTurn{
			Agent: report.Agent, LastMessage: report.LastMessage, Reason: report.Reason, At: time.Now().UnixMilli(),
		})
	}
	if err != nil {
		s.refuseBody(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// opens tells which session a coding agent has open, if it has said that.
func (s *Server) opens(x *exchange, report protocol.AgentReported) {
	if s.opts.Sessions != nil && report.Session != "" {
		s.opts.Sessions.AgentSession(x.caller.Session, x.caller.PTY, report.Agent, report.Session)
	}
}

// lastOf returns the end of an agent's last message, bounded and without
// secrets.
func (s *Server) lastOf(text string) string {
	text = strings.ToValidUTF8(string(s.opts.Secrets.Mask([]byte(text))), "\uFFFD")
	if cut := len(text) - protocol.MaxLastMessage; cut > 0 {
		text = text[cut:]
		for text != "" && text[0]&0xC0 == 0x80 { // cuts the rest of a character
			text = text[1:]
		}
	}
	return text
}

// agentReports answers reports that a coding agent works, or waits.
func (s *Server) agentReports(tell func(protocol.SessionID, protocol.PTYID, string) error) handler {
	return func(w http.ResponseWriter, r *http.Request, x *exchange) {
		var report protocol.AgentReported
		err := s.decode(x, w, r, &report)
		if err == nil && (report.Agent == "" || len(report.Agent) > protocol.MaxAgentNameBytes) {
			err = protocol.Errorf(protocol.KindInvalid, "agent is missing, or too long")
		}
		if err == nil {
			s.opens(x, report)
			err = tell(x.caller.Session, x.caller.PTY, report.Agent)
		}
		if err != nil {
			s.refuseBody(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// registerPlugin takes a port of the terminal's programs for a plugin.
func (s *Server) registerPlugin(w http.ResponseWriter, r *http.Request, x *exchange) {
	var offer pluginsocket.Offer
	err := s.decode(x, w, r, &offer)
	var plugin pluginsocket.Info
	if err == nil {
		plugin, err = s.opts.Plugins.Register(x.caller.Session, x.caller.PTY, offer)
	}
	if err != nil {
		s.refuseBody(w, err)
		return
	}
	writeJSON(w, http.StatusOK, plugin)
}

func (s *Server) scrollback(w http.ResponseWriter, _ *http.Request, x *exchange) {
	text, err := s.opts.Terminals.Scrollback(x.caller.Session, x.caller.PTY)
	if err != nil {
		s.refuseBody(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(text)
}
