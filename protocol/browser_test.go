package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestDecodeClientMessage(t *testing.T) {
	for data, want := range map[string]ClientMessage{
		`{"type":"resize","cols":80,"rows":24}`:          {Type: ClientResize, Cols: 80, Rows: 24},
		`{"type":"resize","cols":1,"rows":1}`:            {Type: ClientResize, Cols: 1, Rows: 1},
		`{"type":"resize","cols":65535,"rows":1001}`:     {Type: ClientResize, Cols: MaxCols, Rows: MaxRows},
		`{"rows":24,"x":[{}],"cols":80,"type":"resize"}`: {Type: ClientResize, Cols: 80, Rows: 24},
		`{"type":"request_control"}`:                     {Type: ClientRequestControl},
		`{"type":"take_control"}`:                        {Type: ClientTakeControl},
		`{"type":"cancel_request"}`:                      {Type: ClientCancelRequest},
		`{"type":"grant_control","to":"usr_b"}`:          {Type: ClientGrantControl, To: "usr_b"},
		`{"type":"revoke_control"}`:                      {Type: ClientRevokeControl},
		`{"type":"reauth","grant":"a.b.c"}`:              {Type: ClientReauth, Grant: "a.b.c"},
		` {"type":"ping"} `:                              {Type: ClientPing},
		`{"type":"execute","text":"ls -l"}`:              {Type: ClientExecute, Text: "ls -l"},
		`{"type":"ping","to":"usr_b","grant":"a"}`:       {Type: ClientPing}, // what a type doesn't use is not passed on
	} {
		if got, err := DecodeClientMessage([]byte(data)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
}

func TestDecodeClientMessageRefuses(t *testing.T) {
	for data, kind := range map[string]Kind{
		``: KindInvalid, `null`: KindInvalid, `[]`: KindInvalid, `"ping"`: KindInvalid, `ping`: KindInvalid, `{}`: KindInvalid,
		`{"type":null}`: KindInvalid, `{"type":7}`: KindInvalid, `{"type":"ping"`: KindInvalid, `{"type":"ping"}{}`: KindInvalid,
		"{\"type\":\"ping\",\"x\":\"\xff\"}":                    KindInvalid,
		`{"type":"ping","x":` + strings.Repeat("[", 60_000):     KindInvalid,
		`{"type":"ping","x":` + strings.Repeat(`{"x":`, 12_000): KindInvalid,
		`{"type":""}`: KindUnsupported, `{"type":"PING"}`: KindUnsupported, `{"type":"control_state"}`: KindUnsupported,
		`{"type":"resize"}`: KindInvalid, `{"type":"resize","cols":80}`: KindInvalid,
		`{"type":"grant_control"}`: KindInvalid, `{"type":"grant_control","to":""}`: KindInvalid,
		`{"type":"grant_control","to":"a b"}`: KindInvalid, `{"type":"grant_control","to":7}`: KindInvalid,
		`{"type":"grant_control","to":null}`: KindInvalid,
		`{"type":"execute"}`:                 KindInvalid, `{"type":"execute","text":""}`: KindInvalid, `{"type":"execute","text":7}`: KindInvalid,
		`{"type":"execute","text":"` + strings.Repeat("x", MaxExecuteBytes+1) + `"}`: KindInvalid,
		`{"type":"reauth"}`: KindInvalid, `{"type":"reauth","grant":""}`: KindInvalid,
	} {
		refuse(t, data, kind)
	}
	for _, size := range []string{
		`0`, `-1`, `65536`, `99999999999999999999`, `"80"`, `null`, `1e400`, `8e1`, `80.5`, `true`, `[80]`, `{}`,
	} {
		refuse(t, `{"type":"resize","cols":`+size+`,"rows":24}`, KindInvalid)
		refuse(t, `{"type":"resize","cols":80,"rows":`+size+`}`, KindInvalid)
	}
}

func refuse(t *testing.T, data string, kind Kind) {
	t.Helper()
	m, err := DecodeClientMessage([]byte(data))
	var e *Error
	if !errors.As(err, &e) || e.Kind != kind || m != (ClientMessage{}) {
		t.Errorf("%.60q: %+v, %v, want %s", data, m, err, kind)
		return
	}
	if len(e.Error()) > 100 {
		t.Errorf("%.60q: the error repeats the input: %.200s", data, e.Error())
	}
}

// serverMessages returns a zero value of every server message, in the order of
// README.md.
func serverMessages() []ServerMessage {
	return []ServerMessage{
		ControlState{}, ControlTaken{}, ControlRequested{}, ControlGranted{}, ControlRevoked{}, ControlExpired{},
		Attached{}, Resync{}, SizeChanged{}, Presence{}, PTYClosed{}, InputDropped{}, ErrorMessage{}, Waiting{}, Reauthed{},
		InputWritten{}, Moved{}, RecordingState{}, AgentStateMessage{}, OutputHeld{},
		AgentStoppedMessage{}, ToolCountChanged{}, PongMessage{}, ListChanged{}, SizeLed{}, SharedMessage{}, Address{},
	}
}

func TestEncodeServerMessage(t *testing.T) {
	for _, m := range serverMessages() {
		got := EncodeServerMessage(m)
		if want := `{"type":"` + m.serverType() + `"`; !bytes.HasPrefix(got, []byte(want)) {
			t.Errorf("%T: %s", m, got)
		}
		back := reflect.New(reflect.TypeOf(m))
		if err := json.Unmarshal(got, back.Interface()); err != nil {
			t.Errorf("%T: %s: %v", m, got, err)
		}
		if strings.Contains(string(got), "null") {
			t.Errorf("%T: a list is null: %s", m, got)
		}
		pointer := reflect.New(reflect.TypeOf(m))
		pointer.Elem().Set(reflect.ValueOf(m))
		if byPointer := EncodeServerMessage(pointer.Interface().(ServerMessage)); !bytes.Equal(got, byPointer) {
			t.Errorf("%T: a pointer reads %s", m, byPointer)
		}
	}
}

// TestServerMessagesAreListed: a type constant without a message, or the other
// way round, would not be tested.
func TestServerMessagesAreListed(t *testing.T) {
	var want []string
	for _, c := range constants(t, "browser.go", "") {
		if strings.HasPrefix(c.name, "Server") {
			want = append(want, strings.Trim(c.value, `"`))
		}
	}
	var got []string
	for _, m := range serverMessages() {
		got = append(got, m.serverType())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("messages %q, constants %q", got, want)
	}
}

func TestListsAreNeverNull(t *testing.T) {
	for _, row := range []struct {
		got  string
		want string
	}{
		{string(EncodeServerMessage(ControlState{You: "usr_a"})), `{"type":"control_state","controller":"","requests":[],"term":0,"agent_state":"","you":"usr_a","can_control":false}`},
		{string(EncodeServerMessage(ControlState{Requests: []UserID{"usr_b"}, Controller: "usr_a", Term: 3, GraceMS: 5, AgentState: "stopped", CanControl: true})),
			`{"type":"control_state","controller":"usr_a","requests":["usr_b"],"term":3,"grace_ms":5,"agent_state":"stopped","you":"","can_control":true}`},
		{string(EncodeServerMessage(ControlRequested{From: "usr_a"})), `{"type":"control_requested","from":"usr_a","requests":[]}`},
		{string(EncodeServerMessage(Presence{})), `{"type":"presence","count":0,"viewers":[]}`},
		{string(EncodeServerMessage(Attached{Epoch: 255, Mode: ModeResume})), `{"type":"attached","epoch":"00000000000000ff","offset":0,"head":0,"cols":0,"rows":0,"mode":"resume","keyframe_bytes":0}`},
	} {
		if row.got != row.want {
			t.Errorf("\n got %s\nwant %s", row.got, row.want)
		}
	}
	list, err := json.Marshal(PTYList{Revision: "r"})
	if want := `{"ptys":[],"revision":"r"}`; err != nil || string(list) != want {
		t.Errorf("%s, %v", list, err)
	}
}

func TestBrowserInput(t *testing.T) {
	want := BrowserInput{Seq: 1 << 40, Term: 7, Bytes: []byte("ls\r")}
	frame := AppendBrowserInput(nil, want)
	got, err := DecodeBrowserInput(frame)
	if err != nil || got.Seq != want.Seq || got.Term != want.Term || string(got.Bytes) != "ls\r" {
		t.Errorf("%+v was read as %+v, %v", want, got, err)
	}
	for n := range browserInputHeader + 1 {
		if _, err := DecodeBrowserInput(frame[:n]); KindOf(err) != KindInvalid {
			t.Errorf("a frame of %d bytes: %v", n, err)
		}
	}
	if _, err := DecodeBrowserInput(AppendBrowserInput(nil, BrowserInput{Term: 1, Bytes: []byte("x")})); KindOf(err) != KindInvalid {
		t.Errorf("sequence 0: %v", err)
	}
}

func TestAck(t *testing.T) {
	m, err := DecodeClientMessage([]byte(`{"type":"ack","offset":12345}`))
	if err != nil || m.Offset != 12345 {
		t.Errorf("ack: %+v, %v", m, err)
	}
	for _, bad := range []string{`{"type":"ack"}`, `{"type":"ack","offset":-1}`, `{"type":"ack","offset":"1"}`, `{"type":"ack","offset":1.5}`} {
		if _, err := DecodeClientMessage([]byte(bad)); KindOf(err) != KindInvalid {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestTerminalLane(t *testing.T) {
	seen := map[Lane]bool{}
	for i := range 100 {
		lane := TerminalLane(PTYID("pty_" + string(rune('a'+i%26)) + string(rune('a'+i/26))))
		if !lane.Known() {
			t.Fatalf("%q is no lane", lane)
		}
		seen[lane] = true
	}
	if len(seen) != len(terminalLanes) {
		t.Errorf("100 terminals use %d lanes", len(seen))
	}
}
