package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

func testInvitation() Invitation {
	e := testEnrolment()
	return Invitation{
		SandboxID: e.SandboxID, Token: "inv_secret", ControlPlane: e.ControlPlane, Relays: e.Relays, RelayCAPEM: e.RelayCAPEM,
	}
}

func TestParseInvitation(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Invitation)
		want   string // part of the error; empty: none
	}{
		"as it is":          {func(*Invitation) {}, ""},
		"no sandbox":        {func(i *Invitation) { i.SandboxID = "" }, "sandbox_id"},
		"no token":          {func(i *Invitation) { i.Token = "" }, "token is empty"},
		"no server name":    {func(i *Invitation) { i.ControlPlane.ServerName = "" }, "server_name"},
		"no relay":          {func(i *Invitation) { i.Relays = nil }, "relays"},
		"nonsense for a CA": {func(i *Invitation) { i.RelayCAPEM = "x" }, "relay_ca_pem"},
	} {
		t.Run(name, func(t *testing.T) {
			i := testInvitation()
			tt.change(&i)
			data, err := json.Marshal(i)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseInvitation(data)
			switch {
			case tt.want == "" && (err != nil || got.Token != i.Token):
				t.Errorf("%+v, %v", got, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case err != nil && i.Token != "" && strings.Contains(err.Error(), i.Token):
				t.Errorf("the error quotes the token: %v", err)
			}
		})
	}
	if _, err := ParseInvitation([]byte(`{"token":"inv_secret","token":"b"}`)); err == nil {
		t.Error("a repeated member is taken")
	}
}

func FuzzParseInvitation(f *testing.F) {
	data, err := json.Marshal(testInvitation())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := ParseInvitation(data)
		if err == nil && (i.Token == "" || !ValidID(i.SandboxID)) {
			t.Errorf("%+v was taken", i)
		}
	})
}

// TestTranscriptsDiffer: a signature made for one purpose is worth nothing for
// another, and no two lists of parts read the same.
func TestTranscriptsDiffer(t *testing.T) {
	seen := map[string]string{}
	for name, transcript := range map[string][]byte{
		"hello":    HelloTranscript("sb_1", nil, []byte("x")),
		"hello 2":  HelloTranscript("sb_1", []byte("x"), nil),
		"enrol":    EnrolTranscript("sb_1", []byte("x")),
		"renew":    RenewTranscript("sb_1", []byte("x")),
		"renew 2":  RenewTranscript("sb_", []byte("1x")),
		"callback": CallbackTranscript("sb_1", []byte("x")),
		"audit":    AuditTranscript("sb_1", 1, "x"),
		"audit 2":  AuditTranscript("sb_1", 2, "x"),
	} {
		if other, twice := seen[string(transcript)]; twice {
			t.Errorf("%s and %s are the same", name, other)
		}
		seen[string(transcript)] = name
	}
}
