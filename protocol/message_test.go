package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
)

// messages returns at least one value of every message, with every member set
// in one of them.
func messages() []Message {
	nonce := bytes.Repeat([]byte{0x5a}, NonceBytes)
	held := Lease{Revision: 9, Term: 4, Holder: "usr_a", GrantID: "gr_a", State: LeaseHeld}
	grace := held
	grace.State, grace.MSLeft = LeaseGrace, 9999
	return []Message{
		Challenge{Nonce: nonce, RelayID: "rl_1"},
		Hello{
			MinVersion: 1, MaxVersion: 2, Features: []string{"x"}, SandboxID: "sb_1", Certificate: "a.b.c",
			Generation: math.MaxUint64, InstanceID: "i1", Revision: "r1", Isolation: "uid", Signature: []byte{0, 255},
		},
		Welcome{Version: 1, RelayID: "rl_1", Revision: "r2", LaneSecret: []byte{1}, Alternates: []string{"b:1"}},
		Refused{Kind: KindForbidden, Message: "not yours <&>"},
		Ping{math.MaxUint64},
		Pong{0},
		Role{Primary: true, Generation: 3, Origin: "https://r.example"},
		LaneRequest{LaneTerminal2},
		LaneRequest{LaneControl},
		GoAway{Reason: KindSuperseded, Message: "m", Alternates: []string{"b:1"}, DeadlineMS: 10, InstanceID: "i2"},
		GoAway{Reason: KindInternal},
		Open{Kind: StreamTerminal, Grant: "a.b.c", Params: json.RawMessage(`{"pty_id":"pty_1"}`)},
		Open{Kind: StreamCommand, Command: "a.b.c"},
		Open{Kind: StreamCommand, Command: "a.b.c", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		Open{Kind: StreamHTTP},
		Open{Kind: StreamConnect},
		Open{Kind: StreamRead, Grant: "a.b.c", Params: json.RawMessage(`{"pty_id":"pty_1"}`)},
		WantKeyframe{History: true},
		WantKeyframe{},
		Keyframe{Offset: 7, History: true, Left: MaxKeyframeBytes - 2, Bytes: []byte("hi")},
		Keyframe{Offset: math.MaxUint64, Bytes: make([]byte, MaxKeyframePiece)},
		Pace{ID: "c", Offset: 9},
		Pace{ID: "c", Gone: true},
		Recording{ID: "rec_1"},
		Recording{},
		Shared{With: ShareNone},
		Shared{With: "pty_1"},
		TerminalsChanged{At: 3},
		Address{URL: "https://example.com/login", AutoOpen: true},
		Opened{Result: json.RawMessage(`{"head":1}`)},
		Opened{},
		Data{Offset: math.MaxUint64, Bytes: []byte("\x1b[0m\xff\x00")},
		Data{Offset: 0, Bytes: make([]byte, MaxDataBytes)},
		Resized{Offset: 5, Cols: MinCols, Rows: MaxRows},
		Exited{Offset: 5, Code: -1, Signal: "SIGKILL"},
		Reset{Epoch: math.MaxUint64, Offset: 5, Cols: MaxCols, Rows: MinRows},
		Input{Term: 1, Seq: 2, Client: "c", Bytes: []byte{3}},
		Input{Term: 1, Seq: 2, Client: strings.Repeat("é", MaxClientBytes/2), Bytes: make([]byte, MaxInputBytes)},
		InputAck{Seq: math.MaxUint64, Client: "c"},
		InputRefused{Seq: 2, Client: "c", Reason: RefusedStaleTerm},
		Resize{Term: math.MaxUint64, Cols: MaxCols, Rows: MinRows},
		LeaseProposal{ID: 1, ExpectRevision: 2, Next: LeaseNext{Holder: "usr_b", GrantID: "gr_b"}},
		LeaseProposal{ID: 1, ExpectRevision: 2},
		Leased{ID: 1, Lease: held, Refused: "conflict"},
		Leased{Lease: grace},
		Leased{Lease: Lease{State: LeaseFree}},
		GrantAdd{Handle: 7, Grant: "a.b.c"},
		GrantAdd{Grant: "a.b.c"},
		GrantDrop{GrantID: "gr_a"},
		Granted{Handle: 7, GrantID: "gr_a", Refused: "expired"},
		Granted{Handle: 7, Refused: "not a grant"},
		Holder{User: "usr_a", Sockets: 2},
		Audience{Sockets: 3},
		Result{Callback: json.RawMessage(`{"status":"ok"}`), Kind: KindExpired, Signature: []byte{1}},
		Status{Problems: []Problem{{Name: ProblemLedger, Message: "no space"}}},
		Status{Problems: []Problem{}},
		AgentReport{State: AgentStopped, Name: "claude", ExitCode: new(2)},
		AgentTurn{Agent: "claude-code", LastMessage: "done", Reason: StopComplete, At: 1}, ToolsChanged{Old: 3, New: 9, At: 2},
		Held{Held: true},
		ApprovalEvent{Offset: 3, Approval: Approval{
			ID: "ap_1", Revision: 2, Kind: ApprovalEgress, SessionID: "ses_1", Host: "example.com", Port: 443,
			State: ApprovalDecided, Decision: AllowOnce, UserID: "usr_a", AskedAt: 1, EndsAt: 2,
		}},
		Open{Kind: StreamApproval, Grant: "a.b.c", Params: json.RawMessage(`{"session_id":"ses_1"}`)},
		Leased{Lease: Lease{Term: 4, Holder: AgentHolder, State: LeaseHeld}},
		ApprovalEvent{Offset: 4, Approval: Approval{
			ID: "ap_2", Revision: 2, Kind: ApprovalTool, SessionID: "ses_1", State: ApprovalCancelled, AskedAt: 1, EndsAt: 2,
			ConversationID: "c.1", RunID: "cmd_1", Tool: "Bash", Input: json.RawMessage(`{"command":"ls"}`),
		}},
		Open{Kind: StreamChat, Grant: "a.b.c", Params: json.RawMessage(`{"session_id":"ses_1","conversation_id":"c.1","after":0}`)},
		Open{Kind: StreamChatRead, Grant: "a.b.c", Params: json.RawMessage(`{"session_id":"ses_1"}`)},
		Open{Kind: StreamChatNews, Grant: "a.b.c", Params: json.RawMessage(`{"session_id":"ses_1"}`)},
		Chat{Seq: 7, Left: MaxChatEvent - 2, Origin: "cmd_1", Bytes: []byte("{}")},
		Chat{Seq: math.MaxUint64, Origin: CommandID(strings.Repeat("c", MaxIDBytes)), Bytes: make([]byte, MaxChatPiece)},
		ChatState{
			Run: RunRunning, CommandID: "cmd_1", UserID: "usr_a", BeganAt: 7, ClientMessageID: "m1", Provider: "claude", Unsupported: true,
			Pending: []Pending{{
				RequestID: "ap_2", ToolName: "Bash", Input: json.RawMessage(`{"command":"ls"}`), Context: json.RawMessage(`{"a":1}`),
				SessionID: "c.1", ReceivedAt: "2026-01-02T03:04:05.000Z", ExpiresAt: "2026-01-02T03:05:00.000Z", Revision: 1,
			}},
		},
		ChatState{Run: RunIdle},
		ChatState{Run: RunAborting, CommandID: "cmd_1"},
		ChatState{Run: RunIdle, Provider: "codex", Terminal: "pty_1"},
		ChatReset{Epoch: math.MaxUint64, FirstSeq: 1, LastSeq: 9},
		ChatNews{ConversationID: "c.1", Message: json.RawMessage(`{"kind":"session_upserted"}`)},
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	seen := map[FrameType]bool{}
	for _, m := range messages() {
		seen[m.FrameType()] = true
		wire := mustAppend(t, m)
		f, err := NewFrameReader(bytes.NewReader(wire)).Next()
		if err != nil {
			t.Fatalf("%#v: %v", m, err)
		}
		if got, err := Decode(f); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s:\n got %#v, %v\nwant %#v", f.Type, got, err, m)
		}
		var written bytes.Buffer
		if err := Write(&written, m); err != nil || !bytes.Equal(written.Bytes(), wire) {
			t.Errorf("%s: Write wrote %x, %v", f.Type, written.Bytes(), err)
		}
	}
	for typ, name := range frameTypes {
		if !seen[typ] {
			t.Errorf("%s is not tried", name)
		}
	}
}

// Data, Input and Chat of the largest size fit one write into a lane.
func TestLargestFramesFitOneWrite(t *testing.T) {
	for _, m := range []Message{
		Data{Bytes: make([]byte, MaxDataBytes)},
		Input{Client: strings.Repeat("c", MaxClientBytes), Bytes: make([]byte, MaxInputBytes)},
		Chat{Seq: 1, Origin: CommandID(strings.Repeat("c", MaxIDBytes)), Bytes: make([]byte, MaxChatPiece)},
	} {
		if n := len(mustAppend(t, m)); n != MaxStreamWrite {
			t.Errorf("%s of %d bytes, want %d", m.FrameType(), n, MaxStreamWrite)
		}
	}
}

// TestGoldenBytes pins the wire, so that a change of layout is seen.
func TestGoldenBytes(t *testing.T) {
	for _, row := range []struct {
		m    Message
		wire string
	}{
		{Ping{0x0102030405060708}, "05 00000008 0102030405060708"},
		{Pong{0xfffffffffffffffe}, "06 00000008 fffffffffffffffe"},
		{Data{7, []byte("hi")}, "20 0000000a 0000000000000007 6869"},
		{Input{Term: 3, Seq: 258, Client: "ab", Bytes: []byte("ls\r")}, "24 00000016 0000000000000003 0000000000000102 02 6162 6c730d"},
		{InputAck{258, "ab"}, "25 0000000a 0000000000000102 6162"},
		{Chat{Seq: 258, Left: 3, Origin: "cmd", Bytes: []byte("{}")}, "60 00000012 0000000000000102 00000003 03 636d64 7b7d"},
		{Chat{Seq: 1, Bytes: []byte("{}")}, "60 0000000f 0000000000000001 00000000 00 7b7d"},
		{Resize{3, 120, 40}, "27 0000000c 0000000000000003 0078 0028"},
		{LaneRequest{LaneControl}, "08 00000012" + hex.EncodeToString([]byte(`{"lane":"control"}`))},
		{Refused{KindNotFound, "no"}, "04 00000023" + hex.EncodeToString([]byte(`{"kind":"not_found","message":"no"}`))},
		{Reset{1, 2, 80, 24}, "23 0000003b" + hex.EncodeToString([]byte(`{"epoch":"0000000000000001","offset":2,"cols":80,"rows":24}`))},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(row.wire, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := mustAppend(t, row.m); !bytes.Equal(got, want) {
			t.Errorf("%#v:\n got %x\nwant %x", row.m, got, want)
		}
	}
}

func TestDecodeMalformed(t *testing.T) {
	nonce := `"` + strings.Repeat("A", 43) + `="`
	for _, row := range []struct {
		typ     FrameType
		payload string
	}{
		{FramePing, ""},
		{FramePing, "1234567"},
		{FramePong, "123456789"},
		{FrameData, "1234567"},
		{FrameData, "12345678"}, // no output
		{FrameData, "12345678" + strings.Repeat("x", MaxDataBytes+1)},
		{FrameInput, strings.Repeat("\x00", 16)},
		{FrameInput, strings.Repeat("\x00", 17) + "x"},         // client of no bytes
		{FrameInput, strings.Repeat("\x00", 16) + "\x02a"},     // client cut off
		{FrameInput, strings.Repeat("\x00", 16) + "\x01a"},     // no input
		{FrameInput, strings.Repeat("\x00", 16) + "\x01\xffx"}, // client not UTF-8
		{FrameInput, strings.Repeat("\x00", 16) + "\x41" + strings.Repeat("a", 65) + "x"},
		{FrameInput, strings.Repeat("\x00", 16) + "\x01a" + strings.Repeat("x", MaxInputBytes+1)},
		{FrameInputAck, "1234567"},
		{FrameInputAck, "12345678"},
		{FrameInputAck, "12345678" + strings.Repeat("a", MaxClientBytes+1)},
		{FrameInputAck, "12345678\xc3"},
		{FrameResize, "12345678\x00\x50\x00"},
		{FrameResize, "12345678\x00\x50\x00\x18\x00"},
		{FrameResize, "12345678\x00\x00\x00\x18"},
		{FrameResize, "12345678\xff\xff\x00\x18"},
		{FrameChallenge, `{"nonce":` + nonce + `}`},
		{FrameChallenge, `{"nonce":"AAAA","relay_id":"rl_1"}`},
		{FrameChallenge, `{"nonce":"*","relay_id":"rl_1"}`},
		{FrameHello, `{"min_version":0,"max_version":1,"sandbox_id":"sb_1","instance_id":"i"}`},
		{FrameHello, `{"min_version":2,"max_version":1,"sandbox_id":"sb_1","instance_id":"i"}`},
		{FrameHello, `{"min_version":1,"max_version":1,"sandbox_id":"sb 1","instance_id":"i"}`},
		{FrameHello, `{"min_version":1,"max_version":1,"sandbox_id":"sb_1","instance_id":""}`},
		{FrameHello, `{"min_version":1,"max_version":1,"sandbox_id":"sb_1","instance_id":"i","generation":-1}`},
		{FrameHello, `{"min_version":1,"max_version":1,"sandbox_id":"sb_1","instance_id":"i","certificate":"` + strings.Repeat("c", MaxTokenBytes+1) + `"}`},
		{FrameWelcome, `{"version":0,"relay_id":"rl_1"}`},
		{FrameWelcome, `{"version":1}`},
		{FrameLane, `{}`},
		{FrameLane, `{"lane":"cargo"}`},
		{FrameOpen, `{}`},
		{FrameOpen, `{"kind":"shell"}`},
		{FrameOpen, `{"kind":"http","grant":"` + strings.Repeat("g", MaxTokenBytes+1) + `"}`},
		{FrameResized, `{"offset":1,"cols":0,"rows":1}`},
		{FrameResized, `{"offset":1,"cols":1,"rows":1001}`},
		{FrameResized, `{"offset":-1,"cols":1,"rows":1}`},
		{FrameReset, `{"epoch":"1","cols":1,"rows":1}`},
		{FrameReset, `{"epoch":1,"cols":1,"rows":1}`},
		{FrameReset, `{"epoch":"000000000000000g","cols":1,"rows":1}`},
		{FrameInputRefused, `{"seq":1,"reason":"busy"}`},
		{FrameLease, `{"id":1,"next":{"holder":"usr_a"}}`},
		{FrameLease, `{"id":1,"next":{"grant_id":"gr_a"}}`},
		{FrameLeased, `{"lease":{"state":"taken"}}`},
		{FrameLeased, `{"lease":{"state":"free","holder":"usr_a"}}`},
		{FrameLeased, `{"lease":{"state":"held","holder":"usr_a"}}`},
		{FrameLeased, `{"lease":{"state":"grace","grant_id":"gr_a"}}`},
		{FrameGrant, `{"grant":""}`},
		{FrameGrant, `{"grant":"` + strings.Repeat("g", MaxTokenBytes+1) + `"}`},
		{FrameUngrant, `{}`},
		{FrameHolder, `{"user":"usr_a","sockets":-1}`},
		{FrameHolder, `{"user":"","sockets":1}`},
		{FrameResult, `{}`},
		{FrameResult, `{"callback":null}`},
		{FrameResult, `{"callback":"ok"}`},
		{FrameChat, strings.Repeat("\x01", 12)},
		{FrameChat, "12345678\x00\x00\x00\x00\x00"},                           // no event
		{FrameChat, "12345678\x00\x00\x00\x00\x02c"},                          // origin cut off
		{FrameChat, "12345678\x00\x00\x00\x00\x01c"},                          // no event
		{FrameChat, "12345678\x00\x00\x00\x00\x02c {}"},                       // origin no id
		{FrameChat, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00{}"}, // no number
		{FrameChat, "12345678\x00\x08\x00\x00\x00{}"},                         // longer than an event may be
		{FrameChat, "12345678\xff\xff\xff\xff\x00{}"},
		{FrameChat, "12345678\x00\x00\x00\x00\x81" + strings.Repeat("c", MaxIDBytes+1) + "{}"},
		{FrameChat, "12345678\x00\x00\x00\x00\x00" + strings.Repeat("x", MaxChatPiece+1)},
		{FrameChatState, `{}`},
		{FrameChatState, `{"run":"asleep"}`},
		{FrameChatReset, `{"epoch":"1"}`},
		{FrameChatNews, `{"conversation_id":"c"}`},
		// Not one object of valid UTF-8, whatever the type.
		{FrameRole, ""},
		{FrameRole, "null"},
		{FrameRole, "[]"},
		{FrameRole, `"{}"`},
		{FrameRole, `{"primary":true`},
		{FrameRole, `{}{}`},
		{FrameRole, `{} x`},
		{FrameRole, `{"origin":"` + "\xff" + `"}`},
		{FrameRole, `{"primary":1}`},
		{FrameRole, `{"generation":1e400}`},
		{FrameRole, `{"x":` + strings.Repeat("[", 60_000) + `}`},
	} {
		m, err := Decode(Frame{row.typ, []byte(row.payload)})
		if !errors.Is(err, ErrMessage) || m != nil {
			t.Errorf("%s %.80q: %#v, %v", row.typ, row.payload, m, err)
		}
	}
}

// TestDecodeIgnoresNewMembers: a newer peer may add some.
func TestDecodeIgnoresNewMembers(t *testing.T) {
	m, err := Decode(Frame{FrameRole, []byte(` {"primary":true,"colour":{"deep":[1,2]},"generation":2} `)})
	if err != nil || m != (Role{Primary: true, Generation: 2}) {
		t.Errorf("%#v, %v", m, err)
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, m := range []Message{
		Data{},
		Data{Bytes: make([]byte, MaxDataBytes+1)},
		Input{Client: "c"},
		Input{Bytes: []byte("x")},
		Input{Client: "\xff", Bytes: []byte("x")},
		InputAck{},
		Resize{Cols: 65536, Rows: 24}, // would wrap to 0
		Resized{},
		Open{Kind: StreamHTTP, Params: json.RawMessage("{")},
		Holder{User: "a b"},
		Audience{Sockets: -1},
		Chat{Seq: 1},
		Chat{Seq: 1, Left: MaxChatEvent, Bytes: []byte("x")},
		Chat{Seq: 1, Left: -1, Bytes: []byte("x")},
		Chat{Bytes: []byte("x")},
		Chat{Seq: 1, Origin: "a b", Bytes: []byte("x")},
		ChatState{},
		ChatNews{},
	} {
		dst, err := Append([]byte("kept"), m)
		if !errors.Is(err, ErrMessage) || string(dst) != "kept" {
			t.Errorf("%#v: %q, %v", m, dst, err)
		}
		if err := Write(io.Discard, m); err == nil {
			t.Errorf("%#v was written", m)
		}
	}
	large := Open{
		Kind: StreamCommand, Grant: strings.Repeat("g", MaxTokenBytes), Command: strings.Repeat("c", MaxTokenBytes),
	}
	if _, err := Append(nil, large); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("OPEN of two tokens: %v", err)
	}
}

func TestWriteIsOneWrite(t *testing.T) {
	var calls countingWriter
	if err := Write(&calls, Data{0, make([]byte, MaxDataBytes)}); err != nil || calls != 1 {
		t.Errorf("%d writes, %v", calls, err)
	}
	cause := errors.New("connection lost")
	if err := Write(failingWriter{cause}, Ping{}); !errors.Is(err, cause) {
		t.Errorf("a failing writer: %v", err)
	}
}

type countingWriter int

func (w *countingWriter) Write(p []byte) (int, error) { *w++; return len(p), nil }

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestUnmarshalObject(t *testing.T) {
	for data, ok := range map[string]bool{
		`{}`: true, " \t\r\n{\"a\":1}\n": true, `{"a":"\ud800"}`: true,
		``: false, ` `: false, `null`: false, `[]`: false, `1`: false, `"{}"`: false, `{`: false, `{}{}`: false,
		"{\"a\":\"\xc3\"}": false, "\ufeff{}": false,
		strings.Repeat(`{"a":`, 50_000) + `1` + strings.Repeat(`}`, 50_000): false,
	} {
		var v map[string]any
		if err := UnmarshalObject([]byte(data), &v); (err == nil) != ok {
			t.Errorf("%.40q: %v", data, err)
		}
	}
}

func TestPreface(t *testing.T) {
	for lane, wire := range map[Lane]string{
		LaneControl: "FLNE\x01\x07control", LaneTerminal0: "FLNE\x01\x0aterminal-0",
	} {
		got := AppendPreface(nil, Preface{MaxVersion, lane})
		if string(got) != wire {
			t.Errorf("%s: %q, want %q", lane, got, wire)
		}
		src := strings.NewReader(wire + "yamux")
		if p, err := ReadPreface(src); err != nil || p != (Preface{MaxVersion, lane}) || src.Len() != len("yamux") {
			t.Errorf("%s: %v, %v, %d bytes left", lane, p, err, src.Len())
		}
		for n := range wire {
			want := io.ErrUnexpectedEOF
			if n == 0 || n == prefaceMinBytes { // ReadFull's word for "nothing at all"
				want = io.EOF
			}
			if _, err := ReadPreface(strings.NewReader(wire[:n])); !errors.Is(err, want) {
				t.Errorf("first %d of %q: %v", n, wire, err)
			}
		}
	}
	for _, wire := range []string{
		"HTTP/1.1 200 OK", "FLNE\x01\x00", "FLNE\x00\x07control", "FLNE\x02\x07control", "FLNE\x01\x05cargo",
		"FLNE\x01\x21" + strings.Repeat("x", 33), "FLNE\x01\xff" + strings.Repeat("x", 255), "flne\x01\x07control",
	} {
		if p, err := ReadPreface(strings.NewReader(wire)); err == nil {
			t.Errorf("%q was read as %v", wire, p)
		}
	}
}

func TestHelloTranscript(t *testing.T) {
	got := HelloTranscript("rl_1", []byte{1, 2}, nil)
	want := "\x00\x00\x00\x10fairlead/1 hello" + "\x00\x00\x00\x04rl_1" + "\x00\x00\x00\x02\x01\x02" + "\x00\x00\x00\x00"
	if string(got) != want {
		t.Errorf("%q", got)
	}
	// The lengths keep the parts apart.
	if bytes.Equal(HelloTranscript("ab", []byte("c"), nil), HelloTranscript("a", []byte("bc"), nil)) {
		t.Error("two inputs, one transcript")
	}
}

func TestFrameReaderReady(t *testing.T) {
	one, err := Append(nil, Ping{1})
	if err != nil {
		t.Fatal(err)
	}
	half := len(one) / 2
	r := NewFrameReader(io.MultiReader(bytes.NewReader(append(bytes.Clone(one), one...)), bytes.NewReader(one[:half]), bytes.NewReader(one[half:])))
	if r.Ready() {
		t.Error("ready before anything was read")
	}
	for i, want := range []bool{true, false, false} { // behind the second is half a frame at most
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if r.Ready() != want {
			t.Errorf("after frame %d ready is %t", i+1, !want)
		}
	}
}
