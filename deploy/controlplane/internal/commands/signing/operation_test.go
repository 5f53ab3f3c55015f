package signing

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

const inSession = `{"sessionId":"ses_1"}`

const onPTY = `{"sessionId":"ses_1","ptyId":"pty_1"}`

// TestOperations: what is signed of each operation, and what it needs.
func TestOperations(t *testing.T) {
	for _, tt := range []struct {
		target, op string
		signed     string // empty: as it was asked for
		needs      []protocol.Capability
	}{
		{`{"sandboxId":"sb_1"}`, `{"kind":"session.create"}`, "", []protocol.Capability{"admin"}},
		{`{"sandboxId":"sb_1"}`, `{"egress":false,"kind":"session.create"}`, `{"kind":"session.create","egress":false}`, []protocol.Capability{"admin"}},
		{`{"sessionId":"ses_1"}`, `{"kind":"session.delete"}`, "", []protocol.Capability{"admin"}},
		{`{"sessionId":"ses_1"}`, `{"kind":"env.apply","unset":["B","A"],"applyNow":true,"set":{"Y":"1","X":""}}`,
			`{"kind":"env.apply","set":{"X":"","Y":"1"},"unset":["A","B"],"applyNow":true}`, []protocol.Capability{"env"}},
		{onPTY, `{"kind":"env.apply","secrets":{"KEY":{"value":"12345678","brokerProtected":true}},"approvedDomains":[{"secret":"KEY","domain":"a.example"}]}`,
			"", []protocol.Capability{"env"}},
		{inSession, `{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"allow_once"}`, "", []protocol.Capability{"approve"}},
		{inSession, `{"kind":"egress.decide","pattern":"*.example.com","decision":"deny_always"}`, "", []protocol.Capability{"approve"}},
		{inSession, `{"kind":"egress.revoke","pattern":"*.example.com"}`, "", []protocol.Capability{"approve"}},
		{inSession, `{"kind":"broker.decide","approvalId":"apr_1","revision":7,"decision":"deny"}`, "", []protocol.Capability{"approve"}},
		{inSession, `{"kind":"broker.decide","secret":"KEY","domain":"a.example","decision":"allow_always"}`, "", []protocol.Capability{"approve"}},
		{`{"sessionId":"ses_1"}`, `{"rows":2,"cols":3,"kind":"pty.create","record":true}`,
			`{"kind":"pty.create","creatorId":"usr_a","cols":3,"rows":2,"record":true}`, []protocol.Capability{"shell", "record"}},
		{onPTY, `{"kind":"pty.close"}`, "", []protocol.Capability{"shell"}},
		{onPTY, `{"kind":"pty.signal","signal":"INT"}`, "", []protocol.Capability{"shell"}},
		{onPTY, `{"kind":"pty.resize","cols":1,"rows":1000}`, "", []protocol.Capability{"shell"}},
		{onPTY, `{"kind":"record.start"}`, "", []protocol.Capability{"record"}},
		{onPTY, `{"kind":"record.stop"}`, "", []protocol.Capability{"record"}},
		{onPTY, `{"kind":"agent.start","name":"claude"}`, "", []protocol.Capability{"agent"}},
		{onPTY, `{"kind":"agent.start","name":"claude","args":["-p"]}`, "", []protocol.Capability{"agent", "shell"}},
		{onPTY, `{"kind":"agent.start","command":"sleep 1"}`, "", []protocol.Capability{"agent", "shell"}},
		{onPTY, `{"kind":"agent.pause"}`, "", []protocol.Capability{"agent"}},
		{onPTY, `{"kind":"agent.resume"}`, "", []protocol.Capability{"agent"}},
		{onPTY, `{"kind":"agent.stop"}`, "", []protocol.Capability{"agent"}},
		{onPTY, `{"kind":"terminal.share","with":"session"}`, "", []protocol.Capability{"control"}},
		{onPTY, `{"kind":"terminal.share","pty":"pty_1","with":"pty_2"}`, "", []protocol.Capability{"control"}},
		{inSession, `{"kind":"terminal.share","pty":"pty_1","with":"none"}`, "", []protocol.Capability{"control"}},
		{`{"session_id":"ses_1","extension_id":"abc","tab_id":7}`,
			`{"kind":"cdp.send","method":"Runtime.evaluate","params":{"expression": "1+1"}}`,
			`{"kind":"cdp.send","method":"Runtime.evaluate","params":{"expression":"1+1"}}`, []protocol.Capability{"mcp"}},
	} {
		var at Target
		if err := json.Unmarshal([]byte(tt.target), &at); err != nil {
			t.Fatal(err)
		}
		if tt.signed == "" {
			tt.signed = tt.op
		}
		op, err := Parse(json.RawMessage(tt.op), at, nil, "usr_a")
		if err != nil || string(op.Op) != tt.signed || !slices.Equal(op.Needs, tt.needs) {
			t.Errorf("%s: %s needs %v, %v; want %s needs %v", tt.op, op.Op, op.Needs, err, tt.signed, tt.needs)
		}
		again, err := Parse(op.Op, at, nil, "usr_a")
		if err != nil || string(again.Op) != string(op.Op) {
			t.Errorf("%s isn't canonical: %s, %v", op.Op, again.Op, err)
		}
	}
}

// FuzzOperation: what is signed is canonical.
func FuzzOperation(f *testing.F) {
	f.Add([]byte(`{"kind":"pty.create","cols":80}`), "ses_1", "", "")
	f.Add([]byte(`{"kind":"env.apply","set":{"A":"b"},"unset":["C"]}`), "ses_1", "pty_1", "")
	f.Add([]byte(`{"kind":"egress.decide","approvalId":"a","revision":1,"decision":"deny"}`), "ses_1", "", "")
	f.Add([]byte(`{"kind":"agent.start","name":"claude","args":["a"]}`), "ses_1", "pty_1", "")
	f.Add([]byte(`{"kind":"cdp.send","method":"A.b","params":{"x":[1]}}`), "ses_1", "", "ext")
	f.Fuzz(func(t *testing.T, raw []byte, session, pty, extension string) {
		at := Target{SessionID: protocol.SessionID(session), PTYID: protocol.PTYID(pty), ExtensionID: extension}
		once, err := Parse(raw, at, nil, "usr_a")
		if err != nil {
			return
		}
		twice, err := Parse(once.Op, at, nil, "usr_a")
		if err != nil || string(twice.Op) != string(once.Op) || !slices.Equal(once.Needs, twice.Needs) || twice.Kind != once.Kind {
			t.Errorf("%q became %q, and that %q, %v", raw, once.Op, twice.Op, err)
		}
	})
}

// TestRequestHash: the hash of values can't be tried out without the key.
func TestRequestHash(t *testing.T) {
	op, err := Parse(json.RawMessage(`{"kind":"env.apply","set":{"PIN":"1234"}}`), Target{SessionID: "ses_1"}, nil, "usr_a")
	if err != nil {
		t.Fatal(err)
	}
	key := bytes.Repeat([]byte{7}, 32)
	one, err := (&Signer{RequestKey: key}).Hash(op)
	if err != nil {
		t.Fatal(err)
	}
	two, err := (&Signer{RequestKey: bytes.Repeat([]byte{8}, 32)}).Hash(op)
	if err != nil || bytes.Equal(one, two) {
		t.Errorf("the hash doesn't depend on the key, %v", err)
	}
	if again, err := (&Signer{RequestKey: key}).Hash(op); err != nil || !bytes.Equal(one, again) {
		t.Errorf("the hash differs from time to time, %v", err)
	}
}
