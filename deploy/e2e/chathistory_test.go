package e2e

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// onePixel is an image.
const onePixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// ids returns those of what was said and done, in order.
func ids[E any](events []E, of func(E) (kind protocol.ChatKind, id string)) (all []string) {
	for _, e := range events {
		switch kind, id := of(e); kind {
		case protocol.ChatText, protocol.ChatThinking, protocol.ChatToolUse, protocol.ChatToolResult:
			all = append(all, string(kind)+" "+id)
		}
	}
	return all
}

// TestTalkHistory: what each provider keeps of a conversation is served by pages,
// with the ids of the live events, and is gone when the conversation is deleted.
// opencode keeps it in a database. What was said in a terminal is part of it.
// Capabilities are those of what is installed.
func TestTalkHistory(t *testing.T) {
	s := talkStack(t, "")
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ask := func(method, path string, status int, into any) {
		t.Helper()
		must(t, call(ctx, status, into, method, alice.Base+"/api/"+path, grant, nil))
	}
	var capable struct {
		Data struct {
			Providers []struct {
				Provider          string
				Installed, Usable bool
				Problem           string
			}
		}
	}
	ask(http.MethodGet, "providers/capabilities", http.StatusOK, &capable)
	for _, p := range capable.Data.Providers {
		if !p.Installed || !p.Usable {
			t.Errorf("%+v", p)
		}
	}
	t.Run("in a terminal", func(t *testing.T) { goesOnInTerminal(t, s) })
	for _, provider := range []string{"claude", "codex", "gemini", "opencode"} {
		t.Run(provider, func(t *testing.T) {
			id, k := talks(t, s, provider, "alice", "bob")
			for i, text := range []string{"say:hello", "say:hello", `tool:Bash {"command":"echo x"}`, "/nosuch command", "images"} {
				options := map[string]any{"skipPermissions": true}
				if text == "images" {
					options["images"] = []protocol.ChatImage{{Name: "a.png", Data: onePixel}}
				}
				must(t, k[0].Send(ctx, id, text, "options", options))
				_, err := k[1].AwaitComplete(ctx, id, i+1)
				must(t, err)
			}
			var page struct {
				Data struct {
					Messages []struct {
						ID        string
						Kind      protocol.ChatKind
						SessionID protocol.ConversationID
						Images    []protocol.ChatImage
					}
					Total      int
					HasMore    bool
					TokenUsage protocol.TokenBudget
				}
			}
			path := "providers/sessions/" + string(id)
			live := ids(k[1].Events(id), func(e Told) (protocol.ChatKind, string) { return e.Kind, e.ID })
			var kept []string
			var tries atomic.Int32 // what is missing for good fails below, and says what it is
			await(t, "the whole transcript", func() bool {
				ask(http.MethodGet, path+"/messages", http.StatusOK, &page)
				kept = ids(page.Data.Messages, func(m struct {
					ID        string
					Kind      protocol.ChatKind
					SessionID protocol.ConversationID
					Images    []protocol.ChatImage
				}) (protocol.ChatKind, string) {
					return m.Kind, m.ID
				})
				return len(kept) >= len(live) || tries.Add(1) > 400
			})
			if !slices.Equal(kept, live) {
				t.Errorf("live:\n%s\nkept:\n%s", strings.Join(live, "\n"), strings.Join(kept, "\n"))
			}
			shown := 0
			for _, m := range page.Data.Messages {
				shown += len(m.Images)
			}
			for _, e := range k[1].Events(id) {
				if e.TokenBudget != nil && e.TokenBudget.Total != page.Data.TokenUsage.Total {
					t.Errorf("the model's context: %d live, %d kept", e.TokenBudget.Total, page.Data.TokenUsage.Total)
				}
			}
			if shown != 1 {
				t.Errorf("%d images are shown", shown)
			}
			ask(http.MethodGet, path+"/messages?limit=1", http.StatusOK, &page)
			if len(page.Data.Messages) != 1 || !page.Data.HasMore || page.Data.Messages[0].SessionID != id {
				t.Errorf("%+v", page.Data)
			}
			var deleted struct {
				Data struct{ DeletedFromDisk bool }
			}
			ask(http.MethodDelete, path+"?force=true", http.StatusOK, &deleted)
			if !deleted.Data.DeletedFromDisk {
				t.Error("what the provider keeps is still there")
			}
			ask(http.MethodGet, path+"/messages", http.StatusNotFound, nil)
		})
	}
}
