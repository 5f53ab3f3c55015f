package protocol

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const testPEM = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

func testEnrolment() Enrolment {
	return Enrolment{
		SandboxID:    "sb_1",
		Certificate:  "a.b.c",
		ControlPlane: EnrolledControlPlane{ServerName: "control.fairlead.test", CAPEM: testPEM},
		JWKS:         json.RawMessage(`{"keys":[]}`),
		Relays:       []string{"127.0.0.1:4433", "[::1]:4433", "relay.example:443"},
		RelayCAPEM:   testPEM,
	}
}

func TestEnrolmentRoundTrip(t *testing.T) {
	want := testEnrolment()
	data, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseEnrolment(data)
	if err != nil {
		t.Fatal(err)
	}
	var compact any
	if err := json.Unmarshal(got.JWKS, &compact); err != nil {
		t.Fatal(err)
	}
	if got.JWKS = want.JWKS; !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

func TestEnrolmentInvalid(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Enrolment)
		want   string
	}{
		{"sandbox", func(e *Enrolment) { e.SandboxID = "../x" }, "sandbox_id"},
		{"no certificate", func(e *Enrolment) { e.Certificate = "" }, "certificate of 0 bytes"},
		{"huge certificate", func(e *Enrolment) { e.Certificate = strings.Repeat("a", MaxTokenBytes+1) }, "certificate of 65537 bytes"},
		{"no server name", func(e *Enrolment) { e.ControlPlane.ServerName = "" }, "server_name"},
		{"control plane CA", func(e *Enrolment) { e.ControlPlane.CAPEM = "" }, "control_plane.ca_pem holds no certificate"},
		{"private key as CA", func(e *Enrolment) { e.RelayCAPEM = strings.ReplaceAll(testPEM, "CERTIFICATE", "PRIVATE KEY") }, "relay_ca_pem holds a PRIVATE KEY"},
		{"jwks", func(e *Enrolment) { e.JWKS = json.RawMessage(`[]`) }, "jwks"},
		{"no relays", func(e *Enrolment) { e.Relays = nil }, "relays is empty"},
		{"relay without port", func(e *Enrolment) { e.Relays = []string{"relay.example"} }, "not host:port"},
		{"relay with port 0", func(e *Enrolment) { e.Relays = []string{"relay.example:0"} }, "not host:port"},
		{"relay without host", func(e *Enrolment) { e.Relays = []string{":443"} }, "not host:port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := testEnrolment()
			tt.change(&e)
			data, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ParseEnrolment(data); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one about %q", err, tt.want)
			}
		})
	}
}

func TestUnmarshalStrict(t *testing.T) {
	type value struct {
		A int            `json:"a"`
		B map[string]any `json:"b"`
	}
	deep := func(n int) string {
		return `{"b":{"c":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`
	}
	for _, tt := range []struct{ data, want string }{
		{`{"a":1,"b":{"c":{"d":1},"e":[{"d":1},{"d":2}]}}`, ""},
		{" {} \n", ""},
		{deep(maxStrictDepth - 2), ""},
		{deep(maxStrictDepth - 1), "nested deeper"},
		{``, "not a JSON object"},
		{`null`, "not a JSON object"},
		{`[]`, "not a JSON object"},
		{`{"a":1,"a":1}`, `"a" appears twice`},
		{`{"b":{"c":[{"d":1,"d":2}]}}`, `"d" appears twice`},
		{`{"b":{"x":1,"\u0078":2}}`, `"x" appears twice`},
		{`{"c":1}`, "unknown field"},
		{`{"a":1}{}`, "after top-level value"},
		{`{"a":1`, "unexpected end"},
		{"{\"b\":{\"\xff\":1}}", "not UTF-8"},
	} {
		var v value
		err := UnmarshalStrict([]byte(tt.data), &v)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%.40q: error %v, want %q", tt.data, err, tt.want)
		}
	}
}

func FuzzParseEnrolment(f *testing.F) {
	valid, err := json.Marshal(testEnrolment())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte(`{"relays":[":"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseEnrolment(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("a valid enrolment can't be written: %v", err)
		}
		if _, err := ParseEnrolment(again); err != nil {
			t.Fatalf("a written enrolment can't be read: %v", err)
		}
	})
}
