package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A capable says what a provider's installed program can do.
type capable struct {
	provider.Capabilities
	Program
}

// provider returns the provider that the path names.
func (h api) provider(c *call) (provider.Provider, error) {
	name := strings.ToLower(strings.TrimSpace(c.parts["provider"]))
	p, ok := provider.ByName(h.o.Providers, name)
	if !ok {
		return nil, &fault{http.StatusBadRequest, "UNSUPPORTED_PROVIDER", fmt.Sprintf("Unsupported provider %q.", name)}
	}
	return p, nil
}

// capabilities returns what the installed program can do. What doesn't speak the
// provider's protocol can do nothing.
func (h api) capabilities(ctx context.Context, p provider.Provider) capable {
	can := capable{Capabilities: p.Capabilities()}
	if h.o.Programs == nil {
		return can
	}
	can.Program = h.o.Programs.Usable(ctx, p)
	if can.Installed && !can.Usable {
		can.SupportsImages, can.SupportsAbort, can.SupportsPermissionRequests, can.SupportsTokenUsage = false, false, false, false
	}
	return can
}

// getAllCapabilities is GET /api/providers/capabilities.
func (h api) getAllCapabilities(c *call) (any, error) {
	all := make([]capable, len(h.o.Providers))
	var asking sync.WaitGroup
	for i, p := range h.o.Providers {
		asking.Go(func() { all[i] = h.capabilities(c.r.Context(), p) })
	}
	asking.Wait()
	return done(map[string]any{"providers": all}), nil
}

// getCapabilities is GET /api/providers/{provider}/capabilities.
func (h api) getCapabilities(c *call) (any, error) {
	p, err := h.provider(c)
	if err != nil {
		return nil, err
	}
	return done(h.capabilities(c.r.Context(), p)), nil
}

// A model is one that a client may ask for.
type model struct {
	Value       string `json:"value"`
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
}

// aliases are names of models that programs take in all their versions, the
// default first. Which models they stand for, the program knows.
var aliases = map[string][]model{
	"claude":   {{Value: "default", Label: "Default"}, {Value: "sonnet", Label: "Sonnet"}, {Value: "opus", Label: "Opus"}, {Value: "haiku", Label: "Haiku"}, {Value: "opusplan", Label: "Opus Plan"}},
	"codex":    {{Value: "default", Label: "Default"}},
	"cursor":   {{Value: "auto", Label: "Auto"}},
	"gemini":   {{Value: "auto", Label: "Auto"}, {Value: "pro", Label: "Pro"}, {Value: "flash", Label: "Flash"}, {Value: "flash-lite", Label: "Flash Lite"}},
	"opencode": {{Value: "default", Label: "Default"}},
}

// modelsFor is how long clients may keep a list of models.
const modelsFor = 3 * 24 * time.Hour

// getModels is GET /api/providers/{provider}/models. Beside the names that its
// program always takes there are those that the program has noted in the home of
// conversations.
func (h api) getModels(c *call) (any, error) {
	p, err := h.provider(c)
	if err != nil {
		return nil, err
	}
	options, source := slices.Clone(aliases[p.Name()]), "aliases"
	now := time.Now()
	if p.Name() == "codex" {
		if noted := h.codexModels(c.session); len(noted) > 0 {
			options, source = append(options, noted...), "program"
		}
	}
	if len(options) == 0 {
		options = []model{{Value: "default", Label: "Default"}}
	}
	return done(map[string]any{
		"provider": p.Name(),
		"models":   map[string]any{"OPTIONS": options, "DEFAULT": options[0].Value},
		"cache": map[string]any{
			"updatedAt": now.UTC().Format(rows.Stamp), "expiresAt": now.Add(modelsFor).UTC().Format(rows.Stamp), "source": source,
		},
	}), nil
}

// codexModels are those that codex has noted.
func (h api) codexModels(session protocol.SessionID) (list []model) {
	var noted struct {
		Models []struct {
			Slug        string `json:"slug"`
			Name        string `json:"display_name"`
			Description string `json:"description"`
			Visibility  string `json:"visibility"`
		} `json:"models"`
	}
	if !h.readNote(session, ".codex/models_cache.json", &noted) {
		return nil
	}
	for _, m := range noted.Models {
		if m.Slug != "" && len(m.Slug) <= 128 && m.Visibility != "hide" && len(list) < 100 {
			list = append(list, model{Value: m.Slug, Label: firstText(m.Name, m.Slug), Description: m.Description})
		}
	}
	return list
}

func firstText(texts ...string) string {
	i := slices.IndexFunc(texts, func(t string) bool { return t != "" })
	return texts[max(i, 0)]
}

// maxNote bounds a file in which a program has noted something, in bytes.
const maxNote = 1 << 20

// readNote reads a JSON file in the home of conversations.
func (h api) readNote(session protocol.SessionID, name string, into any) bool {
	h.openChat(session)
	h.mu.Lock()
	at := h.shelf(session).homes[chatHome]
	h.mu.Unlock()
	if at == nil {
		return false
	}
	content, _, err := at.files.Read(name, maxNote)
	return err == nil && json.Unmarshal(content, into) == nil
}

// A login says whether a provider's program can work in a session's conversations.
type login struct {
	Provider      string  `json:"provider"`
	Installed     bool    `json:"installed"`
	Authenticated bool    `json:"authenticated"`
	Email         *string `json:"email"`
	Method        *string `json:"method"`
	Error         *string `json:"error,omitempty"`
}

// logins are the files in which programs keep that somebody has logged in, with a
// member that is there then, and the variables that do instead.
var logins = map[string]struct {
	file, member string
	variables    []string
}{
	"claude":   {".claude/.credentials.json", "claudeAiOauth", []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}},
	"codex":    {".codex/auth.json", "", []string{"OPENAI_API_KEY", "CODEX_API_KEY"}},
	"gemini":   {".gemini/oauth_creds.json", "", []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"}},
	"opencode": {".local/share/opencode/auth.json", "", []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"}},
	"cursor":   {".config/cursor/auth.json", "", []string{"CURSOR_API_KEY"}},
}

// getAuthStatus is GET /api/providers/{provider}/auth/status.
func (h api) getAuthStatus(c *call) (any, error) {
	p, err := h.provider(c)
	if err != nil {
		return nil, err
	}
	status := login{Provider: p.Name()}
	if h.o.Programs != nil {
		status.Installed = h.o.Programs.Installed(p).Installed
	}
	by := logins[p.Name()]
	var content map[string]json.RawMessage
	if by.file != "" && h.readNote(c.session, by.file, &content) && len(content) > 0 && (by.member == "" || content[by.member] != nil) {
		status.Authenticated, status.Method = true, new("credentials_file")
	}
	if h.o.Variables != nil && !status.Authenticated {
		names := h.o.Variables.Names(c.session)
		if slices.ContainsFunc(by.variables, func(v string) bool { return slices.Contains(names, v) }) {
			status.Authenticated, status.Method = true, new("api_key")
		}
	}
	switch {
	case !status.Installed:
		status.Error = new(p.Name() + " is not installed")
	case !status.Authenticated:
		status.Error = new("Not authenticated")
	case p.Name() == "claude":
		status.Email = h.claudeEmail(c.session)
	}
	return done(status), nil
}

// claudeEmail is whose account claude uses, nil if it doesn't say.
func (h api) claudeEmail(session protocol.SessionID) *string {
	var noted struct {
		Account struct {
			Email string `json:"emailAddress"`
		} `json:"oauthAccount"`
	}
	if !h.readNote(session, ".claude.json", &noted) || noted.Account.Email == "" {
		return nil
	}
	return new(h.o.Masker.Text(noted.Account.Email))
}
