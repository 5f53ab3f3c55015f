package provider

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// gemini is Google's gemini (0.61.0), by the Agent Client Protocol.
//
// gemini keeps a session in files
// ~/.gemini/tmp/<project>/chats/session-<time>-<first 8 of its id>.jsonl, a new
// one each time that the session is loaded. Their rows have ids that the protocol
// doesn't tell, but for those of tool calls: see [GeminiIDs].
type gemini struct{}

func (gemini) Name() string { return "gemini" }

func (gemini) Capabilities() Capabilities {
	return Capabilities{
		Provider: "gemini", PermissionModes: []string{modeDefault, "acceptEdits", op.BypassPermissions, modePlan}, DefaultPermissionMode: modeDefault,
		SupportsImages: true, SupportsAbort: true, SupportsPermissionRequests: true, SupportsTokenUsage: true,
	}
}

// Check refuses what gemini lacks.
func (g gemini) Check(s Start, t Turn) error { return permits(g.Capabilities(), s, t) }

// Command returns gemini as a server of the protocol, in a folder that it trusts:
// in others it ignores modes.
func (gemini) Command(s Start) Command {
	args := []string{"--acp", "--skip-trust"}
	switch {
	case s.InTerminal: // where gemini asks for trust itself
		args = []string{"--resume", s.Native}
	case s.Model != "":
		args = append(args, "--model="+s.Model)
	}
	return Command{Program: "gemini", Args: args, Install: "npm install -g @google/gemini-cli"}
}

// geminiModes maps permission modes to gemini's.
var geminiModes = map[string]string{
	"": "default", modeDefault: "default", "acceptEdits": "autoEdit", op.BypassPermissions: "yolo", modePlan: "plan",
}

// geminiWords says what gemini's exit codes mean.
var geminiWords = map[int]string{
	41: "it isn't logged in", 42: "its input was rejected", 44: "its sandbox has failed", 52: "its configuration is wrong",
	53: "the limit of turns is reached",
}

// geminiLoads comes before the id of a session that gemini loads. Before gemini
// reads a session's file it begins a new one, named after the minute and the id's
// first letters: in the minute in which the session has begun that is the same
// file, and all of the session would be gone. gemini finds a session without the
// space, but names the new file with it.
const geminiLoads = " "

func (gemini) Talk(s Start) Talk {
	mode := s.Mode
	if s.SkipPermissions {
		mode = op.BypassPermissions
	}
	return newACP(s, acpProgram{
		acpDialect: geminiDialect{ids: new(GeminiIDs)}, title: "gemini", mode: geminiModes[mode], loads: geminiLoads, wholeThoughts: true, words: geminiWords,
		lacks: "Chat needs gemini --acp, which older versions don't have.",
		login: "Log in by running gemini in a terminal, or set GEMINI_API_KEY.",
	})
}

// geminiDialect is gemini's way with the Agent Client Protocol.
type geminiDialect struct{ ids *GeminiIDs }

func (g geminiDialect) textID(_, text string) string    { return g.ids.Text(text) }
func (g geminiDialect) thoughtID(_, text string) string { return g.ids.Thought(text) }
func (g geminiDialect) prompted(text string)            { g.ids.Prompt(text) }

func (geminiDialect) usage(end acpPrompted) (protocol.TokenBudget, bool) {
	q := end.Meta.Quota
	if q == nil {
		return protocol.TokenBudget{}, false
	}
	in, out := q.Tokens.Input, q.Tokens.Output
	return protocol.TokenBudget{Used: in + out, InputTokens: in, OutputTokens: out}, true
}

// toolName returns a tool's name from the id of its call, which begins with it:
// name__name_time_number.
func (geminiDialect) toolName(c acpCall) string {
	for at := range c.ID {
		if name := c.ID[:at]; at > 0 && strings.HasPrefix(c.ID[at:], "__"+name+"_") {
			return name
		}
	}
	if c.named != "" {
		return c.named
	}
	return c.Kind
}

// GeminiIDs makes the ids of a session's texts and thoughts from what was said
// before, so that who follows a session and who reads its file have the same.
// Both tell it everything from the beginning of the session on, in order.
type GeminiIDs struct {
	prompt string
	seen   map[[sha256.Size]byte]uint64
}

// Prompt takes what a person has said: the text of a row of type user. Rows that
// hold a session's context or the result of a tool aren't what a person says.
func (g *GeminiIDs) Prompt(text string) {
	text = strings.TrimSpace(text)
	if text == "" || strings.HasPrefix(text, "<session_context>") || strings.HasPrefix(text, "[Function Response: ") {
		return
	}
	g.prompt = text
}

// Text returns the id of a text of the model: the content of a row of type
// gemini, which isn't blank.
func (g *GeminiIDs) Text(text string) string { return g.id("text", text) }

// Thought returns the id of a thought: "**subject**\ndescription" of one of a
// row's.
func (g *GeminiIDs) Thought(text string) string { return g.id("thought", text) }

func (g *GeminiIDs) id(kind, text string) string {
	h := sha256.New()
	for _, s := range []string{kind, g.prompt, strings.TrimSpace(text)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	key := [sha256.Size]byte(h.Sum(nil))
	if g.seen == nil {
		g.seen = make(map[[sha256.Size]byte]uint64)
	}
	g.seen[key]++
	h.Write(binary.BigEndian.AppendUint64(nil, g.seen[key]))
	return hex.EncodeToString(h.Sum(nil)[:16])
}
