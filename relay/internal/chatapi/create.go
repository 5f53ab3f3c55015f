package chatapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// providers are the coding agents of seed 002. The sandbox knows which of them it
// has.
var providers = map[string]bool{"claude": true, "cursor": true, "codex": true, "gemini": true, "opencode": true}

// Codes and texts of POST /api/providers/sessions (chat-and-shell-2.md 2.2).
const (
	codeProvider = "UNSUPPORTED_PROVIDER"
	codePath     = "PROJECT_PATH_REQUIRED"
	textPath     = "projectPath is required."
)

const (
	// maxCreate bounds the body, in bytes: the first message is in it.
	maxCreate = 2 << 20
	// nameWords is how many words of the first message name a conversation, and
	// maxName bounds that, in characters.
	nameWords = 4
	maxName   = 100
	// untitled names a conversation without a first message.
	untitled = "Untitled Session"
)

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() protocol.ConversationID {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return protocol.ConversationID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
}

// nameOf returns the name of a conversation that begins with a message.
func nameOf(message string) string {
	words := strings.Fields(strings.ToValidUTF8(message, ""))
	if len(words) == 0 {
		return untitled
	}
	name := []rune(strings.Join(words[:min(nameWords, len(words))], " "))
	return string(name[:min(maxName, len(name))])
}

// createConversation is POST /api/providers/sessions {provider, projectPath}: 201
// {sessionId, provider, projectPath, sessionName}.
func (a *API) createConversation(w http.ResponseWriter, r *http.Request) {
	c, err := a.Desk.Authorize(r, protocol.CapChat)
	var body map[string]json.RawMessage
	if err == nil {
		body, err = readObject(w, r)
	}
	if err != nil {
		a.refuseAPI(w, err)
		return
	}
	text := func(name string) (s string) {
		if json.Unmarshal(body[name], &s) != nil {
			return ""
		}
		return strings.TrimSpace(s)
	}
	provider, path := strings.ToLower(text("provider")), text("projectPath")
	if !providers[provider] {
		a.refuseAs(w, protocol.KindInvalid, codeProvider, `Unsupported provider "`+cut(provider)+`".`)
		return
	}
	if path == "" {
		a.refuseAs(w, protocol.KindInvalid, codePath, textPath)
		return
	}
	create := &op.ChatCreate{Conversation: newUUID(), Provider: provider, ProjectPath: path}
	name := nameOf(text("initialMessage"))
	if name != untitled {
		create.Title = name
	}
	if err := a.create(r, c, create); err != nil {
		a.refuseCreate(w, err)
		return
	}
	access.WriteJSON(w, http.StatusCreated, map[string]any{"success": true, "data": map[string]any{
		"sessionId": create.Conversation, "provider": provider, "projectPath": path, "sessionName": name,
	}})
}

// create has a conversation made. The request's Idempotency-Key makes a retry the
// same command, whose conversation the sandbox then names.
func (a *API) create(r *http.Request, c webapp.Caller, create *op.ChatCreate) error {
	if err := create.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandTimeout)
	defer cancel()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = rand.Text()
	} else {
		create.Conversation = "" // it would be another request
	}
	if len(key) > protocol.MaxIDBytes {
		return protocol.Errorf(protocol.KindInvalid, "Idempotency-Key is over %d bytes", protocol.MaxIDBytes)
	}
	env, err := a.sign(ctx, c, op.Op{Kind: op.KindChatCreate, Body: create}, key)
	if err != nil {
		return err
	}
	result, err := a.Dispatcher.Run(ctx, env)
	if err == nil && result.ConversationID != "" {
		create.Conversation = result.ConversationID
	}
	if err == nil && create.Conversation == "" {
		err = protocol.Errorf(protocol.KindUpstream, "the sandbox did not name the conversation")
	}
	return err
}

// refuseCreate answers with an error of the sandbox's, under its own code if it
// has one.
func (a *API) refuseCreate(w http.ResponseWriter, err error) {
	fault, ok := chatsocket.ParseFault(err)
	if !ok {
		a.refuseAPI(w, err)
		return
	}
	kind := protocol.KindOf(err)
	if fault.Code == protocol.ChatUnsupportedProvider {
		kind = protocol.KindInvalid // seed 002
	}
	a.refuseAs(w, kind, string(fault.Code), fault.Text)
}

// readObject returns the members of r's body, a JSON object. No body counts as an
// empty one.
func readObject(w http.ResponseWriter, r *http.Request) (map[string]json.RawMessage, error) {
	data, err := access.ReadBody(w, r, maxCreate)
	if err != nil {
		return nil, err
	}
	body := map[string]json.RawMessage{}
	if len(data) > 0 && protocol.UnmarshalObject(data, &body) != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "the body must be a JSON object")
	}
	return body, nil
}

// cut bounds what an answer quotes.
func cut(s string) string {
	runes := []rune(s)
	return string(runes[:min(len(runes), 64)])
}
