package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

const (
	maxSummary  = 500 // UTF-16 units of a title (seed 002)
	maxRecent   = 50  // conversations in /recent
	flushAt     = 256 << 10
	maxJSONBody = 64 << 10
)

// info returns the conversation that the path names.
func (h api) info(c *call) (chat.ConversationInfo, error) {
	id := protocol.ConversationID(strings.TrimSpace(c.parts["id"]))
	if !protocol.ValidConversation(id) {
		return chat.ConversationInfo{}, &fault{http.StatusBadRequest, "INVALID_SESSION_ID", "Invalid session ID."}
	}
	info, err := h.o.Conversations.Get(c.session, id)
	if err != nil {
		h.look(c.session) // it may have been begun in a terminal just now
		info, err = h.o.Conversations.Get(c.session, id)
	}
	if err != nil {
		return info, notFound(id)
	}
	return info, nil
}

func notFound(id protocol.ConversationID) error {
	return &fault{http.StatusNotFound, "SESSION_NOT_FOUND", fmt.Sprintf("Session %q was not found.", id)}
}

// number returns a number of the query, or otherwise where there is none.
func (c *call) number(name string, otherwise int) (int, error) {
	text := strings.TrimSpace(c.r.URL.Query().Get(name))
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || strings.HasPrefix(text, "+") {
		return 0, invalidQuery(name + " must be a non-negative integer.")
	}
	return n, nil
}

// flag returns a truth of the query.
func (c *call) flag(name string, otherwise bool) (bool, error) {
	switch text := c.r.URL.Query().Get(name); text {
	case "":
		return otherwise, nil
	case "true", "false":
		return text == "true", nil
	}
	return false, invalidQuery(name + ` must be "true" or "false".`)
}

// getMessages is GET /api/providers/sessions/{id}/messages.
func (h api) getMessages(c *call) (any, error) {
	limit, err := c.number("limit", -1)
	if err != nil {
		return nil, err
	}
	offset, err := c.number("offset", 0)
	if err != nil {
		return nil, err
	}
	info, err := h.info(c)
	if err != nil {
		return nil, err
	}
	h.counts.pages.Add(1)
	t := h.transcriptOf(info)
	said, err := h.saidIn(c.r.Context(), t)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	first, last := said.window(limit, offset)
	page, sub, join := &pageWriter{w: c.w}, &subagents{of: t}, h.joiner(info, said)
	for row, err := range said.pages.Page(first, last) {
		if err == nil {
			row = join.row(sub.with(row))
			row.SessionID, row.Provider = info.ID, info.Provider
			err = page.row(row)
		}
		if err != nil {
			return nil, page.fail(err)
		}
	}
	tail := struct {
		Total      int                   `json:"total"`
		HasMore    bool                  `json:"hasMore"`
		Offset     int                   `json:"offset"`
		Limit      *int                  `json:"limit"`
		TokenUsage *protocol.TokenBudget `json:"tokenUsage,omitempty"`
	}{Total: said.Counted, HasMore: first > 0 && limit >= 0, Offset: offset, TokenUsage: join.used(said.About.Usage)}
	if limit >= 0 {
		tail.Limit = &limit
	}
	if err := page.end(tail); err != nil {
		return nil, page.fail(err)
	}
	return nil, nil
}

// A pageWriter writes a page of messages, without holding it as a whole.
type pageWriter struct {
	w       http.ResponseWriter
	buf     bytes.Buffer
	rows    int
	flushed bool
}

func (p *pageWriter) row(r rows.Row) error {
	encoded, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if p.rows == 0 {
		p.buf.WriteString(`{"success":true,"data":{"messages":[`)
	} else {
		p.buf.WriteByte(',')
	}
	p.rows++
	p.buf.Write(encoded)
	if p.buf.Len() >= flushAt {
		return p.flush()
	}
	return nil
}

// end writes what stands behind the messages, the members of tail.
func (p *pageWriter) end(tail any) error {
	encoded, err := json.Marshal(tail)
	if err != nil {
		return err
	}
	if p.rows == 0 {
		p.buf.WriteString(`{"success":true,"data":{"messages":[`)
	}
	p.buf.WriteString("],")
	p.buf.Write(encoded[1 : len(encoded)-1])
	p.buf.WriteString("}}\n")
	return p.flush()
}

func (p *pageWriter) flush() error {
	if !p.flushed {
		p.w.Header().Set("Content-Type", "application/json")
		p.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	p.flushed = true
	_, err := p.buf.WriteTo(p.w)
	return err
}

// fail returns what is to be answered. An answer that has begun is cut off, so
// that it doesn't pass for a whole one.
func (p *pageWriter) fail(err error) error {
	if p.flushed {
		panic(http.ErrAbortHandler)
	}
	return protocol.Fault(protocol.KindUnavailable, err)
}

// renameSession is PUT /api/providers/sessions/{id}.
func (h api) renameSession(c *call) (any, error) {
	var body struct {
		Summary json.RawMessage `json:"summary"`
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxJSONBody))
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		return nil, &fault{http.StatusBadRequest, "INVALID_REQUEST_BODY", "Request body must be an object."}
	}
	var summary string // "" of what is no string
	_ = json.Unmarshal(body.Summary, &summary)
	summary = strings.TrimSpace(summary)
	switch {
	case summary == "":
		return nil, &fault{http.StatusBadRequest, "INVALID_SESSION_SUMMARY", "Summary is required."}
	case len(utf16.Encode([]rune(summary))) > maxSummary:
		return nil, &fault{http.StatusBadRequest, "INVALID_SESSION_SUMMARY", "Summary must not exceed 500 characters."}
	}
	info, err := h.info(c)
	if err != nil {
		return nil, err
	}
	if _, err := h.o.Conversations.Rename(c.session, info.ID, summary); err != nil {
		return nil, err
	}
	return done(map[string]any{"sessionId": info.ID, "summary": summary}), nil
}

// deleteSession is DELETE /api/providers/sessions/{id}: it archives, unless it is
// forced.
func (h api) deleteSession(c *call) (any, error) {
	force, err := c.flag("force", false)
	if err != nil {
		return nil, err
	}
	fromDisk, err := c.flag("deletedFromDisk", force)
	if err != nil {
		return nil, err
	}
	info, err := h.info(c)
	if err != nil {
		return nil, err
	}
	action := "archived"
	if force {
		action = "deleted"
		fromDisk, err = h.delete(c.r.Context(), info, fromDisk)
	} else {
		fromDisk = false
		_, err = h.o.Conversations.Archive(c.session, info.ID, true)
	}
	if err != nil {
		return nil, err
	}
	return done(map[string]any{"sessionId": info.ID, "action": action, "deletedFromDisk": fromDisk}), nil
}

// delete forgets a conversation and, with fromDisk, removes what its provider
// keeps of it, which it reports. The conversation goes first: that may be
// refused, ends what would write more, and what is left then if this program is
// killed is a session that was found on disk, and can be deleted like any.
func (h api) delete(ctx context.Context, info chat.ConversationInfo, fromDisk bool) (removed bool, err error) {
	var t *transcript
	if fromDisk {
		t = h.transcriptOf(info) // while it is known whose it is
	}
	if err := h.o.Runs.Delete(info.Session, info.ID); err != nil || t == nil {
		return false, err
	}
	if err := h.removeTranscript(ctx, t); err != nil {
		h.log.Warn("a transcript was not wholly removed", "session", info.Session, "conversation", info.ID, "err", err)
		return false, nil
	}
	if found, again := h.o.Conversations.ByNative(info.Session, t.native.provider, t.native.id); again && found.Adopted {
		return true, h.o.Runs.Delete(info.Session, found.ID) // it was found in between
	}
	return true, nil
}

// removeTranscript removes what a provider keeps of a session.
func (h api) removeTranscript(ctx context.Context, t *transcript) error {
	if l, ok := t.layout.(stored); ok && shared(l) {
		return h.deleteStored(ctx, t, l)
	}
	err := t.home.files.Remove(t.name)
	for _, name := range t.layout.beside(t.name) {
		err = errors.Join(err, t.home.files.Remove(name))
	}
	h.lost(place{t.home, t.name})
	return err
}

// restoreSession is POST /api/providers/sessions/{id}/restore.
func (h api) restoreSession(c *call) (any, error) {
	info, err := h.info(c)
	if err != nil {
		return nil, err
	}
	if _, err := h.o.Conversations.Archive(c.session, info.ID, false); err != nil {
		return nil, err
	}
	return done(map[string]any{"sessionId": info.ID, "isArchived": false}), nil
}

// A detail is a conversation with all that a list of them tells.
type detail struct {
	SessionID          protocol.ConversationID `json:"sessionId"`
	Provider           string                  `json:"provider"`
	ProjectID          *string                 `json:"projectId"`
	ProjectPath        *string                 `json:"projectPath"`
	ProjectDisplayName string                  `json:"projectDisplayName"`
	SessionTitle       string                  `json:"sessionTitle"`
	CreatedAt          string                  `json:"createdAt"`
	UpdatedAt          string                  `json:"updatedAt"`
	LastActivity       string                  `json:"lastActivity"`
	IsProjectArchived  bool                    `json:"isProjectArchived"`
	IsArchived         bool                    `json:"isArchived"`
	IsProcessing       bool                    `json:"isProcessing"`
}

func (h api) detail(info chat.ConversationInfo, running map[protocol.ConversationID]bool) detail {
	listed := h.listed(info)
	d := detail{
		SessionID: info.ID, Provider: info.Provider, SessionTitle: listed.Summary, LastActivity: listed.LastActivity,
		CreatedAt: isoMillis(info.CreatedAt), UpdatedAt: isoMillis(info.UpdatedAt),
		ProjectDisplayName: cmp.Or(filepath.Base(info.ProjectPath), info.ProjectPath),
		IsArchived:         info.Archived, IsProcessing: running[info.ID],
	}
	if info.ProjectPath != "" {
		id := projectID(info.ProjectPath)
		d.ProjectID, d.ProjectPath = &id, &info.ProjectPath
	}
	return d
}

func isoMillis(ms int64) string { return time.UnixMilli(ms).UTC().Format(rows.Stamp) }

// details returns those of a session's conversations that which chooses, at most
// limit, the one that was used last first.
func (h api) details(of protocol.SessionID, limit int, which func(info chat.ConversationInfo, running bool) bool) any {
	h.look(of)
	running := make(map[protocol.ConversationID]bool)
	for _, id := range h.o.Runs.Running(of) {
		running[id] = true
	}
	all := h.shown(of)
	h.sortByActivity(all)
	list := []detail{}
	for _, info := range all {
		if len(list) < limit && which(info, running[info.ID]) {
			list = append(list, h.detail(info, running))
		}
	}
	return done(map[string]any{"sessions": list})
}

// getArchived is GET /api/providers/sessions/archived.
func (h api) getArchived(c *call) (any, error) {
	return h.details(c.session, chat.MaxConversations, func(info chat.ConversationInfo, _ bool) bool { return info.Archived }), nil
}

// getRunning is GET /api/providers/sessions/running.
func (h api) getRunning(c *call) (any, error) {
	return h.details(c.session, chat.MaxConversations, func(_ chat.ConversationInfo, running bool) bool { return running }), nil
}

// getRecent is GET /api/providers/sessions/recent.
func (h api) getRecent(c *call) (any, error) {
	limit, err := c.number("limit", maxRecent)
	if err != nil {
		return nil, err
	}
	return h.details(c.session, min(limit, 200), func(info chat.ConversationInfo, _ bool) bool { return !info.Archived }), nil
}

// getSession is GET /api/providers/sessions/{id}.
func (h api) getSession(c *call) (any, error) {
	info, err := h.info(c)
	if err != nil {
		return nil, err
	}
	h.look(c.session)
	running := make(map[protocol.ConversationID]bool)
	for _, id := range h.o.Runs.Running(c.session) {
		running[id] = true
	}
	return done(h.detail(info, running)), nil
}

// getNothing answers that there is nothing.
func (h api) getNothing(*call) (any, error) { return nil, errNoRoute }

// usage returns what a conversation has used of its model's context.
func (h api) usage(c *call, info chat.ConversationInfo) (*protocol.TokenBudget, error) {
	said, err := h.saidIn(c.r.Context(), h.transcriptOf(info))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	if said.About.Usage == nil {
		return &protocol.TokenBudget{}, nil
	}
	return (&joiner{h: h, info: info}).used(said.About.Usage), nil
}

// getUsage is GET /api/providers/sessions/{id}/token-usage.
func (h api) getUsage(c *call) (any, error) {
	info, err := h.info(c)
	if err != nil {
		return nil, err
	}
	used, err := h.usage(c, info)
	if err != nil {
		return nil, err
	}
	return done(used), nil
}

// getTokenUsage is GET /api/projects/{project}/sessions/{id}/token-usage.
func (h api) getTokenUsage(c *call) (any, error) {
	info, err := h.info(c)
	if err == nil && projectID(info.ProjectPath) != c.parts["project"] {
		err = noProject(c.parts["project"])
	}
	if err != nil {
		return nil, err
	}
	used, err := h.usage(c, info)
	if err != nil {
		return nil, err
	}
	return used, nil
}
