package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/program/standin"
	"github.com/fairlead/fairlead/protocol"
)

// talkStack starts a stack whose sandbox finds stand-ins for the coding agents'
// programs, and where bob may talk and approve. config is further YAML for its agent.
func talkStack(t *testing.T, config string, flags ...string) *Stack {
	t.Helper()
	return talkStackOf(t, agentPrograms(t), config, flags...)
}

// talkStackOf is talkStack with other programs: those in the folders of path, an
// entry of YAML.
func talkStackOf(t *testing.T, path, config string, flags ...string) *Stack {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "program-path: [%s]\n%s", path, config), 0o600))
	s := own(t, append([]string{"--sandbox-config", file}, flags...)...)
	ctx := within(t)
	alice, bob := s.Ready.User("alice"), s.Ready.User("bob")
	must(t, call(ctx, http.StatusOK, nil, http.MethodPut, alice.Base+"/dashboards/"+dashboardOf(ctx, t, s)+"/members/"+string(bob.ID),
		alice.Token, map[string]any{"role": "editor"}))
	return s
}

// agentPrograms returns a folder that terminals' users can read, with stand-ins
// under the names of coding agents' programs.
func agentPrograms(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(openTemp, tempName())
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	data, err := os.ReadFile(filepath.Join(programs, "codingagent"))
	must(t, err)
	program := filepath.Join(dir, "stand-in")
	must(t, os.WriteFile(program, data, 0o755))
	must(t, standin.Install(dir, program))
	return dir
}

// talks opens talkers for users who follow one new conversation of alice's.
func talks(t *testing.T, s *Stack, provider string, users ...string) (protocol.ConversationID, []*Talker) {
	t.Helper()
	ctx := within(t)
	id := newTalk(t, s, provider)
	var all []*Talker
	for _, name := range users {
		k := s.Ready.User(name).Talk(t.Context(), Talking{Session: s.Ready.SessionID})
		t.Cleanup(k.Close)
		must(t, k.Follow(ctx, id))
		all = append(all, k)
	}
	return id, all
}

// newTalk has alice begin a conversation.
func newTalk(t *testing.T, s *Stack, provider string) protocol.ConversationID {
	t.Helper()
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var answer struct {
		Success bool `json:"success"`
		Data    struct {
			SessionID   protocol.ConversationID `json:"sessionId"`
			Provider    string                  `json:"provider"`
			ProjectPath string                  `json:"projectPath"`
		} `json:"data"`
	}
	must(t, call(ctx, http.StatusCreated, &answer, http.MethodPost, alice.Base+"/api/providers/sessions", grant,
		map[string]any{"provider": provider, "projectPath": "."}))
	if !answer.Success || answer.Data.Provider != provider || !protocol.ValidConversation(answer.Data.SessionID) {
		t.Fatalf("%+v", answer)
	}
	return answer.Data.SessionID
}

// kinds returns the kinds of events in their order, without repetitions next to
// each other.
func kinds(events []Told) string {
	var all []string
	for _, e := range events {
		all = append(all, string(e.Kind))
	}
	return strings.Join(slices.Compact(all), " ")
}

// sameEvents reports how what a talker got differs from another's, who missed
// nothing: own is the text that the first one has sent itself.
func sameEvents(t *testing.T, who string, got, whole []Told, own func(Told) bool) {
	t.Helper()
	whole = slices.DeleteFunc(slices.Clone(whole), own)
	if len(got) != len(whole) {
		t.Errorf("%s got %d events of %d", who, len(got), len(whole))
		return
	}
	for i := range got {
		if string(got[i].Raw) != string(whole[i].Raw) {
			t.Errorf("%s, event %d:\n%s\nwant\n%s", who, i, got[i].Raw, whole[i].Raw)
			return
		}
	}
}

func userText(e Told) bool { return e.Kind == protocol.ChatText && e.Role == "user" }
func nothing(Told) bool    { return false }

// TestTalk: alice sends, everybody sees what comes of it, in one order and with
// one complete. bob, who has no control, and carol, who may not talk, are
// refused.
// It is about weakness 3 in deploy/e2e/README.md.
func TestTalk(t *testing.T) {
	s := talkStack(t, "")
	ctx := within(t)
	id, k := talks(t, s, "claude", "alice", "bob", "carol")
	alice, bob, carol := k[0], k[1], k[2]
	must(t, alice.Send(ctx, id, "deltas:5@100", "clientMessageId", "m1"))
	done, err := bob.AwaitComplete(ctx, id, 1)
	must(t, err)
	if done.ExitCode == nil || *done.ExitCode != 0 || done.Success == nil || !*done.Success || *done.Aborted || done.ActualSessionID != id {
		t.Errorf("complete: %s", done.Raw)
	}
	for _, other := range []*Talker{alice, carol} {
		if _, err := other.AwaitComplete(ctx, id, 1); err != nil {
			t.Fatal(err)
		}
	}
	whole := bob.Events(id)
	if whole[0].Seq != 1 || !userText(whole[0]) || whole[0].ClientMessageID != "m1" || whole[0].From == nil || whole[0].From.UserID != s.Ready.Users["alice"].ID {
		t.Errorf("first: %s", whole[0].Raw)
	}
	for i, e := range whole {
		if e.Seq != uint64(i+1) || e.SessionID != id || e.Provider != "claude" || e.ID == "" || e.Timestamp == "" {
			t.Errorf("event %d: %s", i, e.Raw)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(whole), func(e Told) bool { return e.Kind != protocol.ChatStreamDelta })); n < 5 {
		t.Errorf("%d deltas: %s", n, kinds(whole))
	}
	if whole[len(whole)-1].Kind != protocol.ChatComplete {
		t.Errorf("last: %s", whole[len(whole)-1].Raw)
	}
	sameEvents(t, "alice", alice.Events(id), whole, userText)
	sameEvents(t, "carol", carol.Events(id), whole, nothing)

	refused(ctx, t, bob, id, protocol.ChatNotController)
	refused(ctx, t, carol, id, protocol.ChatForbidden)
	must(t, alice.Send(ctx, id, "say:again", "clientMessageId", "m1")) // another text under the same name
	if e, err := alice.AwaitError(ctx, 0); err != nil || e.Code != protocol.ChatInternalError {
		t.Errorf("%+v, %v", e, err)
	}
}

// refused has a talker send something that must be refused.
func refused(ctx context.Context, t *testing.T, k *Talker, id protocol.ConversationID, code protocol.ChatCode) {
	t.Helper()
	n := len(k.Errors())
	must(t, k.Send(ctx, id, "say:no"))
	e, err := k.AwaitError(ctx, n)
	must(t, err)
	if e.Code != code || e.SessionID == nil || *e.SessionID != id || e.Text == "" {
		t.Errorf("%+v, want %s", e, code)
	}
}

// TestTalkPermission: a coding agent asks, carol may not answer, bob may, once,
// and everybody sees the question go.
func TestTalkPermission(t *testing.T) {
	s := talkStack(t, "")
	ctx := within(t)
	id, k := talks(t, s, "claude", "alice", "bob", "carol")
	alice, bob, carol := k[0], k[1], k[2]
	must(t, alice.Send(ctx, id, `ask:Bash {"command":"touch asked"}`))
	var request Told
	asked := func(k *Talker) {
		must(t, k.Await(ctx, "permission_request", id, func(talk *Talk) bool {
			for _, e := range talk.Events {
				if e.Kind == protocol.ChatPermissionRequest {
					request = e
					return true
				}
			}
			return false
		}))
	}
	asked(alice)
	asked(carol)
	asked(bob)
	if request.ToolName != "Bash" || !strings.Contains(string(request.Input), "touch asked") {
		t.Errorf("%s", request.Raw)
	}
	late := s.Ready.User("bob").Talk(t.Context(), Talking{Session: s.Ready.SessionID})
	t.Cleanup(late.Close)
	must(t, late.Follow(ctx, id))
	must(t, late.Await(ctx, "the pending question", id, func(talk *Talk) bool {
		p := talk.Acks[0].PendingPermissions
		return talk.Acks[0].IsProcessing && len(p) == 1 && p[0].RequestID == request.RequestID && p[0].SessionID == id
	}))
	must(t, carol.Say(ctx, "chat.permission-response", id, "requestId", request.RequestID, "allow", true))
	if e, err := carol.AwaitError(ctx, 0); err != nil || e.Code != protocol.ChatForbidden {
		t.Errorf("%+v, %v", e, err)
	}
	must(t, bob.Say(ctx, "chat.permission-response", id, "requestId", request.RequestID, "allow", true))
	must(t, late.Say(ctx, "chat.permission-response", id, "requestId", request.RequestID, "allow", false)) // too late, or first
	for _, other := range k {
		_, err := other.AwaitComplete(ctx, id, 1)
		must(t, err)
	}
	gone := 0
	for _, e := range carol.Events(id) {
		if e.Kind == protocol.ChatPermissionCancelled && e.RequestID == request.RequestID && e.Reason == protocol.CancelledDecided {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("the question went %d times: %s", gone, kinds(carol.Events(id)))
	}
	sameEvents(t, "bob", bob.Events(id), carol.Events(id), nothing)
}

// TestTalkAbort: a run that was stopped ends with one complete, and the next one
// begins.
// It is about weakness 5 in deploy/e2e/README.md.
func TestTalkAbort(t *testing.T) {
	s := talkStack(t, "")
	ctx := within(t)
	for _, provider := range []string{"claude", "codex", "gemini", "opencode", "cursor"} {
		t.Run(provider, func(t *testing.T) {
			id, k := talks(t, s, provider, "alice")
			alice := k[0]
			must(t, alice.Send(ctx, id, "deltas:100000@50"))
			must(t, alice.Await(ctx, "a delta", id, func(talk *Talk) bool { return strings.Contains(kinds(talk.Events), "stream_delta") }))
			must(t, alice.Send(ctx, id, "say:busy"))
			if e, err := alice.AwaitError(ctx, 0); err != nil || e.Code != protocol.ChatRunInProgress {
				t.Errorf("%+v, %v", e, err)
			}
			must(t, alice.Say(ctx, "chat.abort", id))
			done, err := alice.AwaitComplete(ctx, id, 1)
			must(t, err)
			if !*done.Aborted || *done.Success || *done.ExitCode != 0 {
				t.Errorf("%s", done.Raw)
			}
			must(t, alice.Send(ctx, id, "say:again"))
			done, err = alice.AwaitComplete(ctx, id, 2)
			must(t, err)
			if *done.Aborted || !*done.Success {
				t.Errorf("%s", done.Raw)
			}
			events := alice.Events(id)
			for i, e := range events {
				if e.Kind == protocol.ChatComplete && i < len(events)-1 && events[i+1].Kind == protocol.ChatComplete {
					t.Errorf("two completes: %s", kinds(events))
				}
			}
		})
	}
}
