package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// Bounds of a search.
const (
	searchFor     = 30 * time.Second
	maxQuery      = 500 // bytes
	perSession    = 2   // matches of one conversation (seed 002)
	snippetBefore = 60  // characters
	snippetAfter  = 120
)

// A found is a text that a search has found.
type found struct {
	Role       string      `json:"role"`
	Snippet    string      `json:"snippet"`
	Highlights []highlight `json:"highlights"`
	Timestamp  string      `json:"timestamp"`
	Provider   string      `json:"provider"`
	Message    string      `json:"messageUuid,omitempty"`
}

// A highlight is a part of a snippet, in UTF-16 units.
type highlight struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// A sessionResult is a conversation with matches.
type sessionResult struct {
	SessionID protocol.ConversationID `json:"sessionId"`
	Summary   string                  `json:"sessionSummary"`
	Provider  string                  `json:"provider"`
	Matches   []found                 `json:"matches"`
}

// A projectResult is a project with matches.
type projectResult struct {
	ProjectID   string          `json:"projectId"`
	ProjectName string          `json:"projectName"`
	DisplayName string          `json:"projectDisplayName"`
	Sessions    []sessionResult `json:"sessions"`
}

// A searchEvent says how far a search is.
type searchEvent struct {
	Result  *projectResult `json:"projectResult,omitempty"`
	Matches int            `json:"totalMatches"`
	Scanned int            `json:"scannedProjects"`
	Total   int            `json:"totalProjects"`
}

// searchSessions is GET /api/providers/search/sessions: server-sent events.
func (h api) searchSessions(c *call) (any, error) {
	query := strings.TrimSpace(c.r.URL.Query().Get("q"))
	if len([]rune(query)) < 2 || len(query) > maxQuery {
		return nil, &fault{http.StatusBadRequest, "INVALID_SEARCH_QUERY", "Query must be at least 2 characters"}
	}
	limit := 50
	if text := c.r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, invalidQuery("limit must be a valid integer.")
		}
		limit = min(max(n, 1), 100)
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), searchFor)
	defer cancel()
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(http.StatusOK)
	send := func(event string, data any) error {
		text, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(c.w, "event: %s\ndata: %s\n\n", event, text)
		}
		if err == nil {
			err = http.NewResponseController(c.w).Flush()
		}
		return err
	}
	err := h.search(ctx, c.session, query, limit, send)
	switch {
	case c.r.Context().Err() != nil:
	case err != nil:
		_ = send("error", map[string]string{"error": "The search took too long"}) // nobody may listen any more
	default:
		_ = send("done", struct{}{})
	}
	return nil, nil
}

// search looks through all conversations of a session.
func (h api) search(ctx context.Context, of protocol.SessionID, query string, limit int, send func(string, any) error) error {
	dirs := h.projects(of)
	at := searchEvent{Total: len(dirs)}
	for _, dir := range dirs {
		result := &projectResult{ProjectID: projectID(dir), ProjectName: dir, DisplayName: filepath.Base(dir), Sessions: []sessionResult{}}
		for _, info := range h.inProject(of, dir) {
			if at.Matches >= limit {
				break
			}
			matches, err := h.searchIn(ctx, info, query, min(perSession, limit-at.Matches))
			if err != nil {
				return err
			}
			if len(matches) > 0 {
				at.Matches += len(matches)
				result.Sessions = append(result.Sessions, sessionResult{info.ID, h.listed(info).Summary, info.Provider, matches})
			}
		}
		at.Scanned++
		event := "progress"
		if at.Result = nil; len(result.Sessions) > 0 {
			event, at.Result = "result", result
		}
		if err := send(event, at); err != nil {
			return err
		}
		if at.Matches >= limit {
			return nil
		}
	}
	return nil
}

// searchIn looks through one conversation. One that can't be read has no matches.
func (h api) searchIn(ctx context.Context, info chat.ConversationInfo, query string, limit int) (matches []found, err error) {
	said, err := h.saidIn(ctx, h.transcriptOf(info))
	if err != nil {
		return nil, ctx.Err()
	}
	defer said.Close()
	wanted, join := lower(query), h.joiner(info, said)
	for row, err := range said.pages.Page(0, said.Rows) {
		if err != nil || ctx.Err() != nil || len(matches) == limit {
			break
		}
		if row.Kind == protocol.ChatText && row.Content != nil {
			row = join.row(row)
			if m, ok := matchIn(&row, wanted); ok {
				m.Provider = info.Provider
				matches = append(matches, m)
			}
		}
	}
	return matches, ctx.Err()
}

// lower returns the characters of a text in lower case, each one's place kept.
func lower(text string) []rune {
	runes := []rune(text)
	for i, r := range runes {
		runes[i] = unicode.ToLower(r)
	}
	return runes
}

// matchIn returns what is around the first match in a row.
func matchIn(row *rows.Row, wanted []rune) (found, bool) {
	text := []rune(*row.Content)
	at := index(lower(*row.Content), wanted)
	if at < 0 {
		return found{}, false
	}
	from, to := max(0, at-snippetBefore), min(len(text), at+len(wanted)+snippetAfter)
	before := string(text[from:at])
	if from > 0 {
		before = "..." + before
	}
	after := string(text[at+len(wanted) : to])
	if to < len(text) {
		after += "..."
	}
	match := string(text[at : at+len(wanted)])
	start := len(utf16.Encode([]rune(before)))
	return found{
		Role: row.Role, Snippet: before + match + after, Timestamp: row.Timestamp, Message: row.ID,
		Highlights: []highlight{{start, start + len(utf16.Encode([]rune(match)))}},
	}, true
}

// index returns where wanted begins in text, −1 if nowhere.
func index(text, wanted []rune) int {
	at := strings.Index(string(text), string(wanted))
	if at < 0 {
		return -1
	}
	return len([]rune(string(text)[:at]))
}
