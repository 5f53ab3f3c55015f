package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// beforeScreens is what a person has answered before a coding agent shows its own
// screen: claude asks for a theme, whether to trust the folder, and whether to use
// the key in its environment.
func beforeScreens(workspace string) string {
	folder, err := json.Marshal(workspace)
	if err != nil {
		panic(err) // a string
	}
	return fmt.Sprintf(`{"hasCompletedOnboarding": true, "theme": "dark", "customApiKeyResponses": {"approved": ["none"]}, `+
		`"projects": {%s: {"hasTrustDialogAccepted": true}}}`, folder)
}

// terminal has the conversation go on in a terminal, in the coding agent's own
// screen, which shows what was said; what is said there goes on by chat.
func (r *realTalk) terminal(t *testing.T) {
	ctx, cancel := context.WithTimeout(within(t), 90*time.Second)
	defer cancel()
	alice, session := r.s.Ready.User("alice"), r.s.Ready.SessionID
	grant, err := alice.Grant(ctx, session)
	must(t, err)
	look := alice.Talk(t.Context(), Talking{Session: session, Hello: true})
	t.Cleanup(look.Close)
	must(t, look.Follow(ctx, r.id))
	var made protocol.PTYInfo
	ptys := alice.Base + "/sessions/" + string(session) + "/ptys"
	must(t, call(ctx, http.StatusCreated, &made, http.MethodPost, ptys, grant, map[string]any{"conversation": r.id, "cols": 100, "rows": 40}))
	over := false
	end := func() {
		if !over {
			over = true
			must(t, call(t.Context(), http.StatusNoContent, nil, http.MethodDelete, ptys+"/"+string(made.ID), grant, nil))
		}
	}
	defer end()
	screen := attach(t, r.s, "alice", made.ID)
	defer func() {
		if t.Failed() {
			text := regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`).ReplaceAll(screen.Output(), nil)
			t.Logf("the screen: %q", text[max(0, len(text)-3000):])
		}
	}()
	must(t, screen.Await(ctx, "what was said", func(output []byte, _ []Message, _ error) bool {
		shown := max(bytes.LastIndex(output, []byte("medlar")), bytes.LastIndex(output, []byte("Resuming session")))
		return bytes.Contains(output, []byte("medlar")) && bytes.LastIndex(output, []byte(r.ready)) > shown
	}))
	// As a paste: what comes as fast by keys is taken for one, with the Enter in it.
	must(t, screen.Type(ctx, "\x1b[200~please-say tamarind\x1b[201~"))
	must(t, screen.Expect(ctx, "tamarind"))
	answered := func() bool {
		return slices.ContainsFunc(r.messages(ctx, t, grant), func(e protocol.ChatEvent) bool {
			return e.Kind == protocol.ChatText && e.Role == "assistant" && e.Content != nil && strings.TrimSpace(*e.Content) == "tamarind"
		})
	}
	// An Enter that comes at once after a paste counts for nothing in some, and
	// without anything typed it does nothing.
	for again := time.NewTicker(time.Second); !answered(); {
		must(t, screen.Type(ctx, "\r"))
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("what was said in the terminal has no answer in the history")
		}
	}
	end()
	must(t, look.Await(ctx, "the way back", r.id, func(k *Talk) bool {
		var run struct {
			State    protocol.RunState
			Terminal protocol.PTYID
		}
		return json.Unmarshal(k.Run, &run) == nil && run.State == protocol.RunIdle && run.Terminal == ""
	}))
	r.recalls(t, learnt+"\nafter an abort\ntamarind")
}

// messages returns the conversation's history.
func (r *realTalk) messages(ctx context.Context, t *testing.T, grant string) []protocol.ChatEvent {
	t.Helper()
	var page struct {
		Data struct {
			Messages []protocol.ChatEvent `json:"messages"`
		} `json:"data"`
	}
	must(t, call(ctx, http.StatusOK, &page, http.MethodGet, r.s.Ready.User("alice").Base+"/api/providers/sessions/"+string(r.id)+"/messages", grant, nil))
	return page.Data.Messages
}
