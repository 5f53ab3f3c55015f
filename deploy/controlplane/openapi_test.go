package controlplane

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/integrations"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/policy"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A document is an OpenAPI document while it is checked.
type document struct {
	t    *testing.T
	root map[string]any
}

// openDocument reads the document as it is served.
func openDocument(t *testing.T, p *plane) *document {
	t.Helper()
	d := &document{t: t}
	w := p.serve(getAs("", "/openapi.json"))
	if err := json.Unmarshal(w.Body.Bytes(), &d.root); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s, %v\n%s", w.Code, w.Body, err, p.log)
	}
	return d
}

// follow returns what a $ref names, and v itself if it is none.
func (d *document) follow(v any) map[string]any {
	d.t.Helper()
	object, _ := v.(map[string]any)
	ref, isRef := object["$ref"].(string)
	if !isRef {
		return object
	}
	path, local := strings.CutPrefix(ref, "#/")
	at := any(d.root)
	for name := range strings.SplitSeq(path, "/") {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	found, ok := at.(map[string]any)
	if !local || !ok {
		d.t.Errorf("%s leads nowhere", ref)
	}
	return found
}

var httpMethods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// operations calls f with each operation and its path.
func (d *document) operations(f func(method, path string, item, op map[string]any)) {
	paths := d.root["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		item := paths[path].(map[string]any)
		for key, v := range item {
			if slices.Contains(httpMethods, key) {
				f(strings.ToUpper(key), path, item, v.(map[string]any))
			} else if key != "parameters" {
				d.t.Errorf("%s: unknown member %q", path, key)
			}
		}
	}
}

// TestOpenAPIRoutes compares the document with what is registered, both ways.
func TestOpenAPIRoutes(t *testing.T) {
	p := newPlane(t)
	registered := func(routes []web.Route) (all []string) {
		for _, rt := range routes {
			all = append(all, rt.String())
		}
		return slices.Sorted(slices.Values(all))
	}
	var people, agents []string
	openDocument(t, p).operations(func(method, path string, _, op map[string]any) {
		listener, _ := op["x-listener"].(string)
		switch listener {
		case "", "both":
			people = append(people, method+" "+path)
		case "agents":
		default:
			t.Errorf("%s %s: x-listener %q", method, path, listener)
		}
		if listener != "" {
			agents = append(agents, method+" "+path)
		}
	})
	for name, pair := range map[string][2][]string{
		"plain":  {people, registered(p.server.routes())},
		"agents": {agents, registered(p.server.agentRoutes())},
	} {
		slices.Sort(pair[0])
		for _, route := range pair[0] {
			if !slices.Contains(pair[1], route) {
				t.Errorf("%s listener: %s is documented, not served", name, route)
			}
		}
		for _, route := range pair[1] {
			if !slices.Contains(pair[0], route) {
				t.Errorf("%s listener: %s is served, not documented", name, route)
			}
		}
	}
}

var (
	pathParameter = regexp.MustCompile(`\{(\w+)\}`)
	statusPattern = regexp.MustCompile(`^([1-5]\d\d|default)$`)
)

// TestOpenAPI checks the document's structure.
func TestOpenAPI(t *testing.T) {
	d := openDocument(t, newPlane(t))
	if d.root["openapi"] != "3.1.0" || d.root["info"].(map[string]any)["title"] == nil || d.root["info"].(map[string]any)["version"] == nil {
		t.Errorf("openapi %v, info %v", d.root["openapi"], d.root["info"])
	}
	var tags []any
	for _, tag := range d.root["tags"].([]any) {
		tags = append(tags, tag.(map[string]any)["name"])
	}
	ids := make(map[any]bool)
	d.operations(func(method, path string, item, op map[string]any) {
		name := method + " " + path
		if id := op["operationId"]; id == nil || ids[id] || op["summary"] == nil {
			t.Errorf("%s: operationId %v, summary %v", name, id, op["summary"])
		}
		ids[op["operationId"]] = true
		for _, tag := range op["tags"].([]any) {
			if !slices.Contains(tags, tag) {
				t.Errorf("%s: unknown tag %v", name, tag)
			}
		}
		d.checkParameters(name, path, item, op)
		d.checkSecurity(name, op)
		if body, ok := op["requestBody"]; ok == (method == "GET" || method == "DELETE") && ok {
			t.Errorf("%s has a body", name)
		} else if ok {
			d.checkContent(name, d.follow(body))
		}
		responses := op["responses"].(map[string]any)
		if len(responses) < 2 || responses["default"] == nil {
			t.Errorf("%s: answers %v", name, responses)
		}
		for status, response := range responses {
			r := d.follow(response)
			if !statusPattern.MatchString(status) || r["description"] == nil {
				t.Errorf("%s: answer %s %v", name, status, r)
			}
			d.checkContent(name, r)
		}
	})
	for name, schema := range d.root["components"].(map[string]any)["schemas"].(map[string]any) {
		d.checkSchema(name, schema)
	}
}

// checkParameters: those in the path are those of the template.
func (d *document) checkParameters(name, path string, item, op map[string]any) {
	var inPath, wanted []string
	listed, _ := item["parameters"].([]any)
	own, _ := op["parameters"].([]any)
	for _, v := range slices.Concat(listed, own) {
		p := d.follow(v)
		in, _ := p["in"].(string)
		if p["name"] == nil || p["schema"] == nil || !slices.Contains([]string{"path", "query", "header", "cookie"}, in) {
			d.t.Errorf("%s: parameter %v", name, p)
		}
		if in == "path" {
			inPath = append(inPath, p["name"].(string))
			if p["required"] != true {
				d.t.Errorf("%s: parameter %v in a path that isn't required", name, p)
			}
		}
		d.checkSchema(name, p["schema"])
	}
	for _, match := range pathParameter.FindAllStringSubmatch(path, -1) {
		wanted = append(wanted, match[1])
	}
	if !slices.Equal(inPath, wanted) {
		d.t.Errorf("%s: parameters %v in the path, want %v", name, inPath, wanted)
	}
}

func (d *document) checkSecurity(name string, op map[string]any) {
	schemes := d.root["components"].(map[string]any)["securitySchemes"].(map[string]any)
	security, ok := op["security"].([]any)
	if !ok {
		security = d.root["security"].([]any)
	}
	for _, requirement := range security {
		for scheme := range requirement.(map[string]any) {
			if schemes[scheme] == nil {
				d.t.Errorf("%s: unknown security scheme %s", name, scheme)
			}
		}
	}
}

func (d *document) checkContent(name string, object map[string]any) {
	content, _ := object["content"].(map[string]any)
	for media, v := range content {
		if schema := v.(map[string]any)["schema"]; schema == nil {
			d.t.Errorf("%s: %s without a schema", name, media)
		} else {
			d.checkSchema(name, schema)
		}
	}
}

// schemaMembers are the keywords that the document may use.
var schemaMembers = strings.Fields(`$ref type properties required items enum const oneOf additionalProperties description
	format pattern minLength maxLength minimum maximum maxItems default examples contentEncoding`)

// checkSchema: a required member is described, and every reference leads somewhere.
func (d *document) checkSchema(name string, v any) {
	schema, ok := v.(map[string]any)
	if !ok {
		d.t.Errorf("%s: schema %v", name, v)
		return
	}
	for key := range schema {
		if !slices.Contains(schemaMembers, key) {
			d.t.Errorf("%s: schema with %q", name, key)
		}
	}
	if _, isRef := schema["$ref"]; isRef {
		d.follow(schema)
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	for member, property := range properties {
		d.checkSchema(name+"."+member, property)
	}
	required, _ := schema["required"].([]any)
	for _, member := range required {
		if properties[member.(string)] == nil {
			d.t.Errorf("%s: %v is required and not described", name, member)
		}
	}
	if more, ok := schema["additionalProperties"].(map[string]any); ok {
		d.checkSchema(name+".*", more)
	}
	if items, ok := schema["items"]; ok {
		d.checkSchema(name+"[]", items)
	}
	choices, _ := schema["oneOf"].([]any)
	for _, choice := range choices {
		d.checkSchema(name, choice)
	}
}

// answer checks a value against the schema of an answer: each required member
// is there, and none is that the schema doesn't know.
func (d *document) answer(name string, v any, schema map[string]any) {
	d.t.Helper()
	schema = d.follow(schema)
	if choices, ok := schema["oneOf"].([]any); ok {
		if len(choices) == 0 {
			d.t.Errorf("%s: no choices", name)
		}
		return
	}
	switch v := v.(type) {
	case map[string]any:
		d.answerObject(name, v, schema)
	case []any:
		items, _ := schema["items"].(map[string]any)
		for i, item := range v {
			d.answer(fmt.Sprintf("%s[%d]", name, i), item, items)
		}
	}
	if allowed, ok := schema["enum"].([]any); ok && !slices.Contains(allowed, v) {
		d.t.Errorf("%s: %v is not one of %v", name, v, allowed)
	}
	if want := schema["type"]; want != nil && want != typeOf(v) && !(want == "integer" && typeOf(v) == "number") {
		d.t.Errorf("%s: %v is of type %s, want %v", name, v, typeOf(v), want)
	}
}

func (d *document) answerObject(name string, v, schema map[string]any) {
	d.t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, member := range required {
		if _, ok := v[member.(string)]; !ok {
			d.t.Errorf("%s: %v lacks %v", name, v, member)
		}
	}
	for member, value := range v {
		property, ok := properties[member].(map[string]any)
		switch {
		case ok:
			d.answer(name+"."+member, value, property)
		case properties != nil:
			d.t.Errorf("%s: member %q is not documented", name, member)
		}
	}
}

func typeOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "number"
	}
	return "null"
}

// TestOpenAPIAnswers asks the routes, and compares what they answer with what
// the document says.
func TestOpenAPIAnswers(t *testing.T) {
	p, up := newIntegratedPlane(t)
	d := openDocument(t, p)
	relay := newFakeRelay(t, callback(`"status":"ok","result":{"kind":"pty.create","ptyId":"pty_9"}`))
	p.register("rl_1", relayToken, relay.URL)
	p.clock.Advance(time.Second)
	p.register("rl_2", relay2Token, relay.URL)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	item := p.want(itemCall("POST", aliceToken, "", `{"kind":"note","body":{"text":"a","x":1}}`, ""), http.StatusCreated, "")["item"].(map[string]any)["id"].(string)
	command := p.want(commandCall(aliceToken, createBody), http.StatusOK, "")["commandId"].(string)
	p.integrate(up)
	for _, tt := range []struct {
		path   string // in the document
		call   call
		status int
	}{
		{"/healthz", getAs("", "/healthz"), 200},
		{"/auth/config", getAs("", "/auth/config"), 200},
		{"/auth/me", getAs(aliceToken, "/auth/me"), 200},
		{"/auth/me", getAs("", "/auth/me"), 401},
		{"/auth/login", getAs("", "/auth/login"), 404},
		{"/grants", call{"POST", "/grants", aliceToken, `{"session_id":"ses_1"}`, nil}, 200},
		{"/grants", call{"POST", "/grants", aliceToken, `{}`, nil}, 400},
		{"/commands", commandCall(aliceToken, createBody), 200},
		{"/commands", getAs(aliceToken, "/commands"), 200},
		{"/commands", commandCall(aliceToken, `{}`), 400},
		{"/commands/{id}", getAs(carolToken, "/commands/"+command), 200},
		{"/dashboards", getAs(aliceToken, "/dashboards"), 200},
		{"/dashboards", call{"POST", "/dashboards", aliceToken, `{"name":"x"}`, nil}, 201},
		{"/dashboards/{id}", getAs(aliceToken, "/dashboards/dash_1"), 200},
		{"/dashboards/{id}", call{"PATCH", "/dashboards/dash_1", aliceToken, `{"name":"x"}`, nil}, 200},
		{"/dashboards/{id}", getAs(daveToken, "/dashboards/dash_1"), 404},
		{"/dashboards/{id}/members", getAs(aliceToken, "/dashboards/dash_1/members"), 200},
		{"/dashboards/{id}/members/{user}", call{"PUT", "/dashboards/dash_1/members/usr_dave", aliceToken, `{"role":"viewer"}`, nil}, 200},
		{"/dashboards/{id}/members", getAs(aliceToken, "/dashboards/dash_1/members"), 200},
		{"/invitations", getAs(daveToken, "/invitations"), 200},
		{"/invitations/{dashboard}/accept", call{"POST", "/invitations/dash_1/accept", daveToken, "", nil}, 200},
		{"/invitations/{dashboard}/accept", call{"POST", "/invitations/dash_1/accept", daveToken, "", nil}, 404},
		{"/invitations/{dashboard}/decline", call{"POST", "/invitations/dash_1/decline", daveToken, "", nil}, 404},
		{"/dashboards/{id}/items", itemCall("POST", aliceToken, "", `{"kind":"todo","body":{"title":"t"}}`, ""), 201},
		{"/dashboards/{id}/items", itemCall("GET", aliceToken, "", "", ""), 200},
		{"/dashboards/{id}/items/{item}", itemCall("GET", aliceToken, "/"+item, "", ""), 200},
		{"/dashboards/{id}/items/{item}", itemCall("PUT", aliceToken, "/"+item, `{"body":{"text":"b"}}`, `"1"`), 200},
		{"/dashboards/{id}/items/{item}", itemCall("PUT", aliceToken, "/"+item, `{"body":{"text":"b"}}`, `"1"`), 409},
		{"/dashboards/{id}/sessions", getAs(aliceToken, "/dashboards/dash_1/sessions"), 200},
		{"/dashboards/{id}/usage", getAs(aliceToken, "/dashboards/dash_1/usage"), 200},
		{"/dashboards/{id}/turns", getAs(aliceToken, "/dashboards/dash_1/turns?session_id=ses_1"), 200},
		{"/dashboards/{id}/integrations", getAs(aliceToken, "/dashboards/dash_1/integrations"), 200},
		{"/dashboards/{id}/integrations/audit", getAs(aliceToken, "/dashboards/dash_1/integrations/audit"), 200},
		{"/dashboards/{id}/terminals/{pty}/integrations/{provider}", attachCall(aliceToken, "pty_1", "github", "acc_9", ""), 400},
		{"/integrations", getAs(aliceToken, "/integrations"), 200},
		{"/integrations/{provider}/connect", call{"POST", "/integrations/github/connect", aliceToken, `{}`, nil}, 200},
		{"/integrations/accounts/{id}", call{"DELETE", "/integrations/accounts/acc_9", aliceToken, "", nil}, 404},
		{"/.well-known/jwks.json", getAs("", "/.well-known/jwks.json"), 200},
		{"/internal/sign", signCall(grant, "k", createPTY), 200},
		{"/internal/sign", signCall("x", "k", createPTY), 401},
		{"/internal/relays/{id}", call{"PUT", "/internal/relays/rl_1", relayToken,
			`{"url":"` + relay.URL + `","tunnel":"127.0.0.1:1","public_origin":"http://127.0.0.1:2"}`, nil}, 200},
	} {
		op := d.root["paths"].(map[string]any)[tt.path].(map[string]any)[strings.ToLower(tt.call.method)].(map[string]any)
		responses := op["responses"].(map[string]any)
		response, ok := responses[fmt.Sprint(tt.status)]
		if !ok {
			response = responses["default"]
		}
		content := d.follow(response)["content"].(map[string]any)["application/json"].(map[string]any)
		status, body, _ := p.do(tt.call)
		if status != tt.status {
			t.Errorf("%s %s: %d %v, want %d", tt.call.method, tt.path, status, body, tt.status)
		}
		d.answer(tt.call.method+" "+tt.path, body, content["schema"].(map[string]any))
	}
}

// TestOpenAPIMembers: the document has the members that are decoded.
func TestOpenAPIMembers(t *testing.T) {
	d := openDocument(t, newPlane(t))
	schemas := d.root["components"].(map[string]any)["schemas"].(map[string]any)
	for name, decoded := range map[string]reflect.Type{
		"OpSessionCreate": reflect.TypeFor[op.SessionCreate](), "OpEnvApply": reflect.TypeFor[op.EnvApply](),
		"OpEgressDecide": reflect.TypeFor[op.EgressDecide](), "OpEgressRevoke": reflect.TypeFor[op.EgressRevoke](),
		"OpChatCreate": reflect.TypeFor[op.ChatCreate](), "OpChatSend": reflect.TypeFor[op.ChatSend](),
		"OpChatAbort": reflect.TypeFor[op.ChatAbort](), "OpToolDecide": reflect.TypeFor[op.ToolDecide](),
		"ChatOptions": reflect.TypeFor[op.ChatOptions](), "ChatMessage": reflect.TypeFor[protocol.ChatMessage](), "ChatImage": reflect.TypeFor[protocol.ChatImage](),
		"OpBrokerDecide": reflect.TypeFor[op.BrokerDecide](), "EnvSecret": reflect.TypeFor[protocol.EnvSecret](),
		"ApprovedDomain": reflect.TypeFor[protocol.ApprovedDomain](), "Approval": reflect.TypeFor[protocol.Approval](),
		"ApprovalNotice": reflect.TypeFor[protocol.ApprovalNotice](), "Policy": reflect.TypeFor[policy.Policy](),
		"Attachment": reflect.TypeFor[integrations.AttachmentBody](), "Account": reflect.TypeFor[integrations.AccountBody](),
		"GatewayRequest": reflect.TypeFor[protocol.GatewayRequest](), "GatewayAnswer": reflect.TypeFor[protocol.GatewayAnswer](),
		"IntegrationList": reflect.TypeFor[protocol.IntegrationList](), "PTYCompleted": reflect.TypeFor[protocol.PTYCompleted](),
	} {
		documented := slices.Sorted(maps.Keys(schemas[name].(map[string]any)["properties"].(map[string]any)))
		members := protocol.MemberNames(reflect.New(decoded).Interface())
		if strings.HasPrefix(name, "Op") {
			members = append(members, "kind")
			slices.Sort(members)
		}
		if !slices.Equal(documented, members) {
			t.Errorf("%s: %v are documented, %v are decoded", name, documented, members)
		}
	}
}

// TestOpenAPIWords: the document lists what the protocol has.
func TestOpenAPIWords(t *testing.T) {
	d := openDocument(t, newPlane(t))
	schemas := d.root["components"].(map[string]any)["schemas"].(map[string]any)
	if got, want := schemas["Capability"].(map[string]any)["enum"], words(protocol.Capabilities...); !slices.Equal(got.([]any), want) {
		t.Errorf("capabilities %v, want %v", got, want)
	}
	var kinds []any
	for _, choice := range schemas["Op"].(map[string]any)["oneOf"].([]any) {
		kind := d.follow(choice)["properties"].(map[string]any)["kind"].(map[string]any)
		if only := kind["const"]; only != nil {
			kinds = append(kinds, only)
		}
		several, _ := kind["enum"].([]any)
		kinds = append(kinds, several...)
	}
	for _, spec := range op.Specs {
		if documented := slices.Contains(kinds, any(spec.Kind)); documented == spec.Own {
			t.Errorf("operation %s is documented: %v", spec.Kind, documented)
		}
	}
	for _, kind := range kinds {
		if _, known := op.Lookup(kind.(string)); !known {
			t.Errorf("operation %v is not one", kind)
		}
	}
	names := schemas["ErrorBody"].(map[string]any)["properties"].(map[string]any)["name"].(map[string]any)["enum"].([]any)
	for _, row := range protocol.Kinds {
		if !slices.Contains(names, any(row.Name)) {
			t.Errorf("error name %s is missing", row.Name)
		}
	}
	if ttl := schemas["TTL"].(map[string]any); ttl["maximum"] != float64(protocol.MaxCommandTTL.Milliseconds()) ||
		ttl["default"] != float64(protocol.DefaultCommandTTL.Milliseconds()) {
		t.Errorf("TTL %v", ttl)
	}
}
