package authority

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

// TestFound02EarlierFile: what an earlier build has stored counts.
func TestFound02EarlierFile(t *testing.T) {
	w := newWorld(t)
	const file = `{"list":{"iss":"control-server","aud":"fairlead","number":3,"iat":1,"grants":[{"jti":"gr_1","exp":5000000000}],"subjects":[],"certificates":[]},"grants":["gr_2"]}`
	must(t, os.WriteFile(filepath.Join(w.dir, revocationsFile), []byte(file), 0o600))
	if a := w.open(); !void(a, "gr_1") || !void(a, "gr_2") || void(a, "gr_3") {
		t.Error("the agent knows something else")
	}
}

// revoke has the control plane say what is void.
func (w *world) revoke(signer *jws.Signer, number uint64, grants ...protocol.GrantID) {
	w.t.Helper()
	r := jws.Revocations{Number: number, IssuedAt: time.Now().Unix()}
	for _, id := range grants {
		r.Grants = append(r.Grants, jws.RevokedGrant{ID: id, ExpiresAt: time.Now().Add(time.Hour).Unix()})
	}
	token, err := signer.SignRevocations(r)
	must(w.t, err)
	w.Handle("GET "+revocationsPath, func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte(token + "\n")) })
}

func void(a *Authority, id protocol.GrantID) bool {
	return a.Trust.Revocations.Set.Grant(&jws.Grant{ID: id})
}

// TestRevocations: what the control plane says is void, for this agent and for
// the next one; an older list, one that somebody else signed, and silence
// change nothing.
func TestRevocations(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	if err := a.Trust.fetchRevocations(within(t)); err == nil || !controlplane.Refused(err) {
		t.Errorf("no such route: %v", err)
	}
	w.revoke(w.Signer, 7, "gr_1")
	must(t, a.Trust.fetchRevocations(within(t)))
	if !void(a, "gr_1") {
		t.Error("the grant is believed")
	}
	grant := signGrant(t, w.Signer) // its id is gr_1
	if _, err := a.Trust.Keys.Grant(t.Context(), grant); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("verified: %v", err)
	}
	other, _ := newKeys(t)
	w.revoke(other, 9)
	if err := a.Trust.fetchRevocations(within(t)); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("a forged list: %v", err)
	}
	w.revoke(w.Signer, 6)
	must(t, a.Trust.fetchRevocations(within(t)))
	if !void(a, "gr_1") {
		t.Error("an older list took it back")
	}

	next := w.open()
	if !void(next, "gr_1") {
		t.Error("the next agent believes it")
	}
	must(t, next.Trust.fetchRevocations(within(t))) // 6 still
	if number, _ := next.Trust.Revocations.Set.Number(); number != 7 || !void(next, "gr_1") {
		t.Errorf("the next agent goes back to %d", number)
	}
	w.revoke(w.Signer, 8, "gr_8")
	must(t, next.Trust.fetchRevocations(within(t)))
	if !void(next, "gr_8") || !void(next, "gr_1") {
		t.Error("the newer list doesn't count, or took something back")
	}
}

// TestRevokedByCommand: grants that a command revokes stay void, whatever the
// list says, also for the next agent; it is on disk when Revoke returns.
func TestRevokedByCommand(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	must(t, a.Trust.Revocations.Revoke([]protocol.GrantID{"gr_2"}))
	onDisk, err := os.ReadFile(filepath.Join(w.dir, revocationsFile))
	if err != nil || !strings.Contains(string(onDisk), "gr_2") {
		t.Errorf("on disk: %s, %v", onDisk, err)
	}
	w.revoke(w.Signer, 1, "gr_3")
	must(t, a.Trust.fetchRevocations(within(t)))
	next := w.open()
	if !void(next, "gr_2") || !void(next, "gr_3") || void(next, "gr_4") {
		t.Error("the next agent knows something else")
	}
}

// TestRevocationsNotStored: a disk that can't be written is an error, and what
// was revoked is void all the same and stored as soon as that works.
func TestRevocationsNotStored(t *testing.T) {
	w := newWorld(t)
	a := w.open()
	path := a.Trust.Revocations.path
	a.Trust.Revocations.path = filepath.Join(w.dir, "none", revocationsFile)
	if err := a.Trust.Revocations.Revoke([]protocol.GrantID{"gr_5"}); protocol.KindOf(err) != protocol.KindInternal || err == nil {
		t.Errorf("Revoke: %v", err)
	}
	if !void(a, "gr_5") {
		t.Error("it is believed")
	}
	a.Trust.Revocations.path = path
	must(t, a.Trust.Revocations.apply(&jws.Revocations{Number: 1}))
	if !void(w.open(), "gr_5") {
		t.Error("it was forgotten")
	}
}

// TestGarbledRevocations: an agent starts without them, and says so.
func TestGarbledRevocations(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(filepath.Join(w.dir, revocationsFile), []byte("{"), 0o600))
	w.open()
	if !strings.Contains(w.log.String(), revocationsFile) {
		t.Errorf("the log says nothing of it:\n%s", w.log)
	}
}
