package relay

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/controlapi"
	"github.com/fairlead/fairlead/relay/internal/openapi"
)

// A described is one operation of the OpenAPI document.
type described struct {
	ID         string                `json:"operationId"`
	Summary    string                `json:"summary"`
	Capability string                `json:"x-capability"`
	Security   []map[string][]string `json:"security"`
	Parameters []struct {
		Ref string `json:"$ref"`
	} `json:"parameters"`
	Responses map[string]json.RawMessage `json:"responses"`
}

// A document is what of the OpenAPI document the tests read.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]described
	Components struct {
		Schemas map[string]struct {
			Properties map[string]json.RawMessage
		}
		Parameters map[string]struct{ Name, In string }
	}
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	must(t, json.Unmarshal(openapi.Document, &d))
	return d
}

// The OpenAPI document has every route that is the relay's own, and no other.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	w, d := newRouteWorld(t), readDocument(t)
	var described, registered []string
	for path, operations := range d.Paths {
		for method := range operations {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	for _, pattern := range w.mux.patterns {
		if !slices.Contains(controlapi.Forwarded, pattern) && pattern != "/" {
			registered = append(registered, pattern)
		}
	}
	registered = append(registered, webRoutes()...)
	slices.Sort(described)
	slices.Sort(registered)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") || !slices.Equal(described, registered) {
		t.Errorf("described:\n%s\nregistered:\n%s", strings.Join(described, "\n"), strings.Join(registered, "\n"))
	}
	answer := w.ask("GET /openapi.json", "")
	if answer.Code != http.StatusOK || answer.Body.String() != string(openapi.Document) {
		t.Errorf("GET /openapi.json: %d", answer.Code)
	}
}

// schemes are the credentials of the table of routes, as the document names them.
var schemes = map[string][]string{
	"grant":                        {"grant"},
	"grant or cookie":              {"grant", "streamCookie"},
	"ticket or cookie":             {"socketCookie", "ticket"},
	"grant or app cookie":          {"appCookie", "grant"},
	"ticket or app cookie":         {"appCookie", "ticket"},
	"side panel's grant":           {"grant"},
	"grant or panel stream cookie": {"grant", "panelStreamCookie"},

	"side panel's grant, cookie or nothing": {"grant", "panelCookie"},
	"callback token":                        {"callbackToken"},
	"the signed command itself":             nil,
	"the signed list itself":                nil,
	"none":                                  nil,
}

// The document says the same as the table of routes about who may do what.
func TestTheDocumentAgreesWithTheTable(t *testing.T) {
	d := readDocument(t)
	ids := map[string]bool{}
	for _, r := range routeTable(t) {
		if !r.relays() || r.route == "GET /" {
			continue
		}
		method, path, _ := strings.Cut(r.route, " ")
		op := d.Paths[path][strings.ToLower(method)]
		var security []string
		for _, scheme := range op.Security {
			for name := range scheme {
				security = append(security, name)
			}
		}
		slices.Sort(security)
		capability := r.needs()[0] // the others are in the description
		if !protocol.Capability(capability).Known() {
			capability = ""
		}
		if op.Capability != capability || !slices.Equal(security, schemes[r.credential]) {
			t.Errorf("%s: %q by %v; protocol/README.md has %q by %s", r.route, op.Capability, security, r.capability, r.credential)
		}
		if op.ID == "" || ids[op.ID] || op.Summary == "" || len(op.Responses) == 0 {
			t.Errorf("%s: %+v", r.route, op)
		}
		ids[op.ID] = true
		var inPath []string
		for _, parameter := range op.Parameters {
			if p := d.Components.Parameters[parameter.Ref[strings.LastIndex(parameter.Ref, "/")+1:]]; p.In == "path" {
				inPath = append(inPath, "{"+p.Name+"}")
			}
		}
		for _, name := range inPath {
			if !strings.Contains(path, name) {
				t.Errorf("%s has no %s", r.route, name)
			}
		}
		if strings.Count(path, "{") != len(inPath) {
			t.Errorf("%s: parameters %v", r.route, inPath)
		}
	}
}

// Every reference leads somewhere, and everything is referred to.
func TestReferencesOfTheDocument(t *testing.T) {
	var whole map[string]any
	must(t, json.Unmarshal(openapi.Document, &whole))
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				used[ref] = true
			}
			for _, member := range v {
				walk(member)
			}
		case []any:
			for _, element := range v {
				walk(element)
			}
		}
	}
	walk(whole)
	there := map[string]bool{}
	for kind, components := range whole["components"].(map[string]any) {
		for name := range components.(map[string]any) {
			there["#/components/"+kind+"/"+name] = kind == "securitySchemes" // these are named, not referred to
		}
	}
	for ref := range used {
		if _, ok := there[ref]; !ok {
			t.Errorf("%s is nowhere", ref)
		}
	}
	for ref, named := range there {
		if !used[ref] && !named {
			t.Errorf("nothing refers to %s", ref)
		}
	}
}

// The schemas of what package protocol defines have the members that it has.
func TestSchemasOfTheDocument(t *testing.T) {
	d := readDocument(t)
	for name, v := range map[string]any{
		"CommandEnvelope": protocol.CommandEnvelope{}, "CommandTarget": protocol.CommandTarget{},
		"ExecutionCallback": protocol.ExecutionCallback{}, "Telemetry": protocol.Telemetry{}, "ErrorBody": protocol.ErrorBody{},
		"PTYInfo": protocol.PTYInfo{}, "PTYList": protocol.PTYList{}, "RecordingInfo": protocol.RecordingInfo{},
		"RecordingList": protocol.RecordingList{}, "AgentStart": op.AgentStart{}, "AgentReport": protocol.AgentReport{}, "SessionAgentInfo": protocol.SessionAgentInfo{},
		"Exited": protocol.Exited{}, "OpResult": protocol.OpResult{},
		"FileInfo": protocol.FileInfo{}, "FileList": protocol.FileList{}, "FileMkdir": protocol.FileMkdir{}, "FileMove": protocol.FileMove{},
		"EnvList": op.EnvList{}, "EnvVariable": op.EnvVariable{}, "Approval": protocol.Approval{},
		"ApprovalList": protocol.ApprovalList{}, "EgressRules": protocol.EgressRules{}, "EgressCategory": protocol.EgressCategory{},
		"SandboxMetrics": protocol.SandboxMetrics{}, "SystemMetrics": protocol.SystemMetrics{}, "ProcessMetrics": protocol.ProcessMetrics{},
		"Tool": protocol.Tool{}, "ToolList": protocol.ToolList{}, "ToolCall": protocol.ToolCall{}, "ToolResult": protocol.ToolResult{},
		"ToolContent": protocol.ToolContent{}, "ChatTokens": protocol.TokenBudget{}, "BrowserStatus": op.BrowserStatus{}, "BrowserTab": op.BrowserTab{},
		"SyncAnswer": op.SyncAnswer{}, "SyncRefusal": op.SyncRefusal{}, "SyncState": op.SyncState{}, "SyncPolicyState": op.SyncPolicyState{},
		"SyncPairing": op.SyncPairing{}, "SyncPush": op.SyncPush{}, "SyncSite": op.SyncSite{},
	} {
		want, got := protocol.MemberNames(v), []string{}
		for member := range d.Components.Schemas[name].Properties {
			got = append(got, member)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
