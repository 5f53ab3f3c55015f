package agent

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
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// connected returns an agent with a tunnel to the control plane.
func (w *world) connected() *Agent {
	w.t.Helper()
	a := w.start()
	near, far := tunneltest.Pair(w.t)
	w.answerConnect(far, certify(w.t, &w.ca, serverName))
	c := a.tunnels.arrive(near, "127.0.0.1:1")
	w.t.Cleanup(func() { a.tunnels.depart(c) })
	return a
}

// TestFound02EarlierFile: what an earlier build has stored counts.
func TestFound02EarlierFile(t *testing.T) {
	w := newWorld(t)
	const file = `{"list":{"iss":"control-server","aud":"fairlead","number":3,"iat":1,"grants":[{"jti":"gr_1","exp":5000000000}],"subjects":[],"certificates":[]},"grants":["gr_2"]}`
	must(t, os.WriteFile(filepath.Join(w.cfg.StateDir, revocationsFile), []byte(file), 0o600))
	if a := w.start(); !void(a, "gr_1") || !void(a, "gr_2") || void(a, "gr_3") {
		t.Error("the agent knows something else")
	}
}

// publish has the control plane say what is void.
func (w *world) publish(signer *jws.Signer, number uint64, grants ...protocol.GrantID) {
	w.t.Helper()
	r := jws.Revocations{Number: number, IssuedAt: time.Now().Unix()}
	for _, id := range grants {
		r.Grants = append(r.Grants, jws.RevokedGrant{ID: id, ExpiresAt: time.Now().Add(time.Hour).Unix()})
	}
	token, err := signer.SignRevocations(r)
	must(w.t, err)
	w.handle("GET "+revocationsPath, func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte(token + "\n")) })
}

func void(a *Agent, id protocol.GrantID) bool { return a.revocations.set.Grant(&jws.Grant{ID: id}) }

// TestRevocations: what the control plane says is void, for this agent and for
// the next one; an older list, one that somebody else signed, and silence
// change nothing.
func TestRevocations(t *testing.T) {
	w := newWorld(t)
	a := w.connected()
	if err := a.fetchRevocations(within(t)); err == nil || !controlplane.Refused(err) {
		t.Errorf("no such route: %v", err)
	}
	w.publish(w.signer, 7, "gr_1")
	must(t, a.fetchRevocations(within(t)))
	if !void(a, "gr_1") {
		t.Error("the grant is believed")
	}
	grant := signGrant(t, w.signer) // its id is gr_1
	if _, err := a.keys.Grant(t.Context(), grant); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("verified: %v", err)
	}
	other, _ := newKeys(t)
	w.publish(other, 9)
	if err := a.fetchRevocations(within(t)); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("a forged list: %v", err)
	}
	w.publish(w.signer, 6)
	must(t, a.fetchRevocations(within(t)))
	if !void(a, "gr_1") {
		t.Error("an older list took it back")
	}
	a.close()

	next := w.connected()
	if !void(next, "gr_1") {
		t.Error("the next agent believes it")
	}
	must(t, next.fetchRevocations(within(t))) // 6 still
	if number, _ := next.revocations.set.Number(); number != 7 || !void(next, "gr_1") {
		t.Errorf("the next agent goes back to %d", number)
	}
	w.publish(w.signer, 8, "gr_8")
	must(t, next.fetchRevocations(within(t)))
	if !void(next, "gr_8") || !void(next, "gr_1") {
		t.Error("the newer list doesn't count, or took something back")
	}
}

// TestRevokedByCommand: grants that a command revokes stay void, whatever the
// list says, also for the next agent; it is on disk when Revoke returns.
func TestRevokedByCommand(t *testing.T) {
	w := newWorld(t)
	a := w.connected()
	must(t, a.revocations.Revoke([]protocol.GrantID{"gr_2"}))
	onDisk, err := os.ReadFile(filepath.Join(w.cfg.StateDir, revocationsFile))
	if err != nil || !strings.Contains(string(onDisk), "gr_2") {
		t.Errorf("on disk: %s, %v", onDisk, err)
	}
	w.publish(w.signer, 1, "gr_3")
	must(t, a.fetchRevocations(within(t)))
	a.close()
	next := w.start()
	if !void(next, "gr_2") || !void(next, "gr_3") || void(next, "gr_4") {
		t.Error("the next agent knows something else")
	}
}

// TestRevocationsNotStored: a disk that can't be written is an error, and what
// was revoked is void all the same and stored as soon as that works.
func TestRevocationsNotStored(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	path := a.revocations.path
	a.revocations.path = filepath.Join(w.cfg.StateDir, "none", revocationsFile)
	if err := a.revocations.Revoke([]protocol.GrantID{"gr_5"}); protocol.KindOf(err) != protocol.KindInternal || err == nil {
		t.Errorf("Revoke: %v", err)
	}
	if !void(a, "gr_5") {
		t.Error("it is believed")
	}
	a.revocations.path = path
	must(t, a.revocations.apply(&jws.Revocations{Number: 1}))
	if !void(w.start(), "gr_5") {
		t.Error("it was forgotten")
	}
}

// TestGarbledRevocations: an agent starts without them, and says so.
func TestGarbledRevocations(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(filepath.Join(w.cfg.StateDir, revocationsFile), []byte("{"), 0o600))
	w.start()
	if !strings.Contains(w.log.String(), revocationsFile) {
		t.Errorf("the log says nothing of it:\n%s", w.log)
	}
}
