package protocol

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every table of README.md is compared with the code, so that the wire
// specification can't say anything else than the package does.

func TestSpecFrames(t *testing.T) {
	var want [][]string
	for _, c := range constants(t, "wire.go", "FrameType") {
		payload, direction, ok := strings.Cut(c.comment, ": ")
		if !ok {
			payload, direction, ok = strings.Cut(c.comment, "; ")
		}
		value, err := strconv.ParseUint(c.value, 0, 8)
		if !ok || err != nil {
			t.Fatalf("%s: want a comment \"payload: direction\" and a value, got %q, %q", c.name, c.comment, c.value)
		}
		name := FrameType(value).String()
		if name != screaming(strings.TrimPrefix(c.name, "Frame")) {
			t.Errorf("%s prints as %q", c.name, name)
		}
		want = append(want, []string{fmt.Sprintf("`0x%02x`", value), name, payload, direction})
	}
	if len(want) != len(frameTypes) {
		t.Errorf("%d constants, %d names", len(want), len(frameTypes))
	}
	compare(t, table(t, "Frames", "type"), want)
}

func TestSpecKinds(t *testing.T) {
	comments := constants(t, "errors.go", "Kind")
	var want [][]string
	for i, row := range Kinds {
		want = append(want, []string{
			code(row.Label), strconv.Itoa(row.Status), strconv.Itoa(row.Close), row.Name, comments[i].comment,
		})
	}
	compare(t, table(t, "Errors", "kind"), want)
}

func TestSpecLimits(t *testing.T) {
	values := map[string]any{
		"MaxFramePayload": MaxFramePayload, "MaxStreamWrite": MaxStreamWrite,
		"MaxDataBytes": MaxDataBytes, "MaxInputBytes": MaxInputBytes, "MaxClientBytes": MaxClientBytes,
		"MaxBrowserMessage": MaxBrowserMessage, "MaxTokenBytes": MaxTokenBytes,
		"MaxRevocationBytes": MaxRevocationBytes,
		"MaxInputUnacked":    MaxInputUnacked, "MaxInputQueued": MaxInputQueued,
		"LogWindowBytes": LogWindowBytes, "RingBytes": RingBytes, "MaxReplayBytes": MaxReplayBytes,
		"RelayRingBytes": RelayRingBytes, "MaxKeyframeBytes": MaxKeyframeBytes, "MaxKeyframeHistory": MaxKeyframeHistory,
		"MaxKeyframePiece": MaxKeyframePiece, "MaxOutputUnacked": MaxOutputUnacked, "AckBytes": AckBytes,
		"MaxPaceLag": MaxPaceLag, "PaceBytes": PaceBytes, "MinPaceRate": MinPaceRate, "MaxPacers": MaxPacers,
		"MaxUnsent": MaxUnsent, "SlowAfter": SlowAfter, "KeyframeInterval": KeyframeInterval,
		"MinCols": MinCols, "MaxCols": MaxCols, "MinRows": MinRows, "MaxRows": MaxRows,
		"DefaultCols": DefaultCols, "DefaultRows": DefaultRows,
		"MaxPersonGrants": MaxPersonGrants, "MaxPresenceViewers": MaxPresenceViewers, "MaxCommandsInFlight": MaxCommandsInFlight, "MaxPTYs": MaxPTYs,
		"ClockSkew": ClockSkew, "MaxCommandTTL": MaxCommandTTL, "DefaultCommandTTL": DefaultCommandTTL,
		"MaxGrantTTL": MaxGrantTTL, "TicketTTL": TicketTTL, "CookieTTL": CookieTTL,
		"ControlGrace": ControlGrace, "ControlIdle": ControlIdle, "PingWatched": PingWatched, "PingIdle": PingIdle, "StreamStall": StreamStall,
		"MaxAgentNameBytes": MaxAgentNameBytes, "MaxExecuteBytes": MaxExecuteBytes, "MaxConnectBytes": MaxConnectBytes,
		"ConnectTimeout": ConnectTimeout, "MaxEnvNames": MaxEnvNames, "MaxApprovals": MaxApprovals, "MaxTraceparentBytes": MaxTraceparentBytes,
		"MaxChatFrame": MaxChatFrame, "MaxChatContent": MaxChatContent, "MaxChatInline": MaxChatInline,
		"MaxChatEvent": MaxChatEvent, "MaxChatPiece": MaxChatPiece, "ChatRingBytes": ChatRingBytes, "RelayChatRingBytes": RelayChatRingBytes,
		"ChatLogBytes": ChatLogBytes, "ChatLogsBytes": ChatLogsBytes, "MaxChatRuns": MaxChatRuns,
		"MaxChatFollowed": MaxChatFollowed, "MaxClientMessageID": MaxClientMessageID, "MaxToolInput": MaxToolInput,
		"GrantWait": GrantWait, "HeldNotice": HeldNotice, "EgressTTL": EgressTTL, "BrokerTTL": BrokerTTL, "ToolTTL": ToolTTL,
		"HandshakeTimeout": HandshakeTimeout, "MaxLastMessage": MaxLastMessage,
		"MaxMCPBody": MaxMCPBody, "MaxMCPBatch": MaxMCPBatch, "MaxMCPDepth": MaxMCPDepth, "MaxGatewayAnswer": MaxGatewayAnswer,
	}
	want := [][]string{{code("MaxIDBytes"), strconv.Itoa(MaxIDBytes)}}
	for _, c := range constants(t, "limits.go", "") {
		value, ok := values[c.name]
		if !ok {
			t.Errorf("%s is a limit that this test doesn't know: add it here and to README.md", c.name)
		}
		want = append(want, []string{code(c.name), fmt.Sprint(value)})
	}
	compare(t, columns(table(t, "Limits", "limit"), 2), want)
}

func TestSpecCapabilities(t *testing.T) {
	comments := constants(t, "capability.go", "Capability")
	var want [][]string
	for i, c := range Capabilities {
		want = append(want, []string{code(string(c)), comments[i].comment})
	}
	compare(t, table(t, "Capabilities and routes", "capability"), want)
}

func TestSpecStreamKindsAndLanes(t *testing.T) {
	compare(t, columns(table(t, "Streams", "kind"), 1), quoted(t, "wire.go", "StreamKind"))
	compare(t, columns(table(t, "Lanes", "lane"), 1), quoted(t, "tunnel.go", "Lane"))
}

func TestSpecLease(t *testing.T) {
	compare(t, columns(table(t, "Terminal streams", "state"), 1), quoted(t, "terminal.go", "LeaseState"))
	compare(t, columns(table(t, "Terminal streams", "reason"), 1), quoted(t, "terminal.go", "RefusalReason"))
}

func TestSpecIDs(t *testing.T) {
	var want [][]string
	for _, id := range newIDs() {
		prefix, _, _ := strings.Cut(id, "_")
		want = append(want, []string{code(prefix + "_")})
	}
	compare(t, columns(table(t, "Ids", "prefix"), 1), want)
}

func TestSpecTunnelMessages(t *testing.T) {
	var want [][]string
	for _, part := range []struct {
		name string
		of   any
	}{
		{"CHALLENGE", Challenge{}}, {"HELLO", Hello{}}, {"WELCOME", Welcome{}}, {"REFUSED", Refused{}},
		{"ROLE", Role{}}, {"LANE", LaneRequest{}}, {"GOAWAY", GoAway{}}, {"OPEN", Open{}}, {"OPENED", Opened{}},
		{"TerminalParams", TerminalParams{}}, {"Position", Position{}}, {"TerminalOpened", TerminalOpened{}},
		{"Lease", Lease{}}, {"RESIZED", Resized{}}, {"EXITED", Exited{}}, {"RESET", Reset{}},
		{"INPUT_REFUSED", InputRefused{}}, {"LEASE", LeaseProposal{}}, {"LeaseNext", LeaseNext{}},
		{"LEASED", Leased{}}, {"GRANT", GrantAdd{}}, {"UNGRANT", GrantDrop{}}, {"GRANTED", Granted{}},
		{"HOLDER", Holder{}}, {"WANT_KEYFRAME", WantKeyframe{}}, {"PACE", Pace{}}, {"RECORDING", Recording{}}, {"SHARED", Shared{}}, {"TERMINALS", TerminalsChanged{}}, {"AUDIENCE", Audience{}}, {"ADDRESS", Address{}},
		{"Pacer", Pacer{}}, {"ReadParams", ReadParams{}}, {"ReadOpened", ReadOpened{}}, {"RESULT", Result{}},
		{"STATUS", Status{}}, {"Problem", Problem{}}, {"AGENT", AgentReport{}},
		{"AGENT_TURN", AgentTurn{}}, {"TOOLS", ToolsChanged{}}, {"HELD", Held{}},
		{"ApprovalParams", ApprovalParams{}}, {"ApprovalsOpened", ApprovalsOpened{}}, {"APPROVAL", ApprovalEvent{}}, {"Approval", Approval{}},
		{"ChatParams", ChatParams{}}, {"ChatOpened", ChatOpened{}}, {"ChatReadParams", ChatReadParams{}}, {"ChatReadOpened", ChatReadOpened{}},
		{"ChatNewsParams", ChatNewsParams{}}, {"CHAT_STATE", ChatState{}}, {"Pending", Pending{}}, {"CHAT_RESET", ChatReset{}}, {"CHAT_NEWS", ChatNews{}},
	} {
		if m, ok := part.of.(Message); ok && m.FrameType().String() != part.name {
			t.Errorf("%T is %s", m, m.FrameType())
		}
		for _, member := range members(part.of) {
			want = append(want, append([]string{part.name}, member...))
		}
	}
	compare(t, columns(table(t, "In the tunnel", "message"), 3), want)
}

// TestSpecChatCodes holds the codes of refusals and their kinds against chatevent.go.
func TestSpecChatCodes(t *testing.T) {
	var want [][]string
	for _, row := range quoted(t, "chatevent.go", "ChatCode") {
		c := ChatCode(strings.Trim(row[0], "`"))
		kind, known := kindOf[c]
		if e := (ChatFault{c, "why"}).Error(); !known || e.Kind != kind || e.Message != string(c)+": why" {
			t.Errorf("%s is %v", c, e)
		}
		want = append(want, []string{code(string(c)), code(kind.String())})
	}
	if len(want) != len(kindOf) {
		t.Errorf("%d codes, %d kinds", len(want), len(kindOf))
	}
	compare(t, columns(table(t, "Chat streams", "code"), 2), want)
}

func TestSpecChatKinds(t *testing.T) {
	both := append(table(t, "Chat streams", "kind"), table(t, "Chat streams", "gateway kind")...)
	compare(t, columns(both, 1), quoted(t, "chatevent.go", "ChatKind"))
}

// TestSpecChatEvents holds the members of events against chatevent.go.
func TestSpecChatEvents(t *testing.T) {
	var want [][]string
	for _, part := range []struct {
		name string
		of   any
	}{
		{"event", ChatEvent{}}, {"from", ChatFrom{}}, {"images", ChatImage{}}, {"toolResult", ChatToolOutput{}},
		{"tokenBudget", TokenBudget{}}, {"breakdown", TokenBreakdown{}},
	} {
		for _, member := range members(part.of) {
			want = append(want, append([]string{part.name}, member...))
		}
	}
	compare(t, columns(table(t, "Of a conversation", "of"), 3), want)
}

func TestSpecServerMessages(t *testing.T) {
	var want [][]string
	for _, m := range serverMessages() {
		all := members(m)
		if len(all) == 0 {
			all = [][]string{{"", ""}}
		}
		for _, member := range all {
			want = append(want, append([]string{code(m.serverType())}, member...))
		}
	}
	compare(t, columns(table(t, "To a browser", "type"), 3), want)
}

func TestSpecClientMessages(t *testing.T) {
	var types []string
	for _, row := range table(t, "From a browser", "type") {
		if name := strings.Trim(row[0], "`"); !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	var want []string
	for _, c := range constants(t, "browser.go", "") {
		if strings.HasPrefix(c.name, "Client") {
			name, _ := strconv.Unquote(c.value)
			want = append(want, name)
		}
	}
	if !slices.Equal(types, want) {
		t.Errorf("README.md has %q, the code %q", types, want)
	}
}

// table returns the cells of the table below a heading of README.md whose first
// column is called first, without its head.
func table(t *testing.T, heading, first string) [][]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	under, in, drawing := false, false, false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			drawing = !drawing
		}
		if drawing {
			continue
		}
		if strings.HasPrefix(line, "#") {
			under = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		}
		if !strings.HasPrefix(line, "|") || !under {
			if in {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case in && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		case cells[0] == first:
			in = true
		}
	}
	if len(rows) == 0 {
		t.Fatalf("README.md has no table of %q under %q", first, heading)
	}
	return rows
}

// columns keeps the first n columns.
func columns(rows [][]string, n int) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		out[i] = row[:min(n, len(row))]
	}
	return out
}

// compare reports the first row in which README.md and the code differ.
func compare(t *testing.T, readme, code [][]string) {
	t.Helper()
	for i := range max(len(readme), len(code)) {
		var r, c []string
		if i < len(readme) {
			r = readme[i]
		}
		if i < len(code) {
			c = code[i]
		}
		if !slices.Equal(r, c) {
			t.Fatalf("row %d:\nREADME.md %q\ncode      %q", i+1, r, c)
		}
	}
}

func code(s string) string { return "`" + s + "`" }

// A constant is one line of a const declaration.
type constant struct{ name, value, comment string }

// constants returns the exported constants of a type in file, or of no stated
// type when typ is empty, in order.
func constants(t *testing.T, file, typ string) []constant {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var out []constant
	current := "" // an iota's type carries on
	for _, decl := range tree.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			spec := spec.(*ast.ValueSpec)
			if len(spec.Values) > 0 {
				current = ""
			}
			if ident, ok := spec.Type.(*ast.Ident); ok {
				current = ident.Name
			}
			for i, name := range spec.Names {
				if current != typ || !name.IsExported() {
					continue
				}
				c := constant{name: name.Name, comment: strings.TrimSpace(spec.Comment.Text())}
				if i < len(spec.Values) {
					if lit, ok := spec.Values[i].(*ast.BasicLit); ok {
						c.value = lit.Value
					}
				}
				out = append(out, c)
			}
		}
	}
	return out
}

// quoted returns the string values of a type's constants as one code column.
func quoted(t *testing.T, file, typ string) [][]string {
	t.Helper()
	var out [][]string
	for _, c := range constants(t, file, typ) {
		value, err := strconv.Unquote(c.value)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		out = append(out, []string{code(value)})
	}
	return out
}

// screaming turns InputAck into INPUT_ACK, and GoAway into GOAWAY.
func screaming(name string) string {
	if name == "GoAway" {
		return "GOAWAY"
	}
	var b strings.Builder
	for i, r := range name {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// members returns the name and kind of v's JSON members, in order.
func members(v any) [][]string {
	var out [][]string
	typ := reflect.TypeOf(v)
	for _, field := range reflect.VisibleFields(typ) {
		if field.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options == "omitempty" {
			name += "?"
		}
		out = append(out, []string{code(name), kindOfJSON(field.Type)})
	}
	return out
}

func kindOfJSON(typ reflect.Type) string {
	switch {
	case typ.Kind() == reflect.Pointer:
		return kindOfJSON(typ.Elem())
	case typ == reflect.TypeFor[json.RawMessage]():
		return "raw"
	case typ == reflect.TypeFor[[]byte]():
		return "base64"
	case typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()), typ.Kind() == reflect.String:
		return "string"
	case typ.Kind() == reflect.Slice:
		return "array"
	case typ.Kind() == reflect.Bool:
		return "bool"
	case typ.Kind() == reflect.Struct:
		return "object"
	}
	return "number"
}
