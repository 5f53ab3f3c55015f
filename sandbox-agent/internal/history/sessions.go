package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// untitled is what clients call a conversation in which nobody has said anything
// (seed 002).
const untitled = "Untitled Session"

// A session is a conversation as clients see it in a list.
type session struct {
	ID           protocol.ConversationID `json:"id"`
	Summary      string                  `json:"summary"`
	MessageCount int                     `json:"messageCount"` // always 0 (seed 002)
	LastActivity string                  `json:"lastActivity"`
}

// A project is a folder in which conversations work, as clients see it.
type project struct {
	ID          string `json:"projectId"`
	Path        string `json:"path"`
	DisplayName string `json:"displayName"`
	FullPath    string `json:"fullPath"`
	IsStarred   bool   `json:"isStarred"`
}

// An upserted is what all sockets of a session are told of a conversation.
type upserted struct {
	Kind      protocol.ChatKind       `json:"kind"`
	SessionID protocol.ConversationID `json:"sessionId"`
	Provider  string                  `json:"provider"`
	Session   session                 `json:"session"`
	Project   *project                `json:"project"`
	Timestamp string                  `json:"timestamp"`
}

// conversationChanged tells of a conversation that package chat has changed. It
// is called under a lock of that, so that what takes longer is done by Run. Of one
// that is put aside nobody is told, who would show it again.
func (h *History) conversationChanged(c chat.Change) {
	if !h.news.listened(c.Session) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Deleted || c.Archived {
		delete(h.fresh, convKey{c.Session, c.ID})
		return
	}
	h.fresh[convKey{c.Session, c.ID}] = c.ConversationInfo
	h.poke()
}

// tell tells of the conversation whose transcript has changed.
func (h *History) tell(t *transcript) {
	info, known := h.o.Conversations.ByNative(t.home.session, t.native.provider, t.native.id)
	if known && !info.Archived && h.news.listened(info.Session) {
		h.tellOf(info)
	}
}

// tellOf tells of a conversation.
func (h *History) tellOf(info chat.ConversationInfo) {
	p := h.project(info.ProjectPath)
	message, err := json.Marshal(upserted{
		Kind: protocol.ChatSessionUpserted, SessionID: info.ID, Provider: info.Provider, Session: h.listed(info),
		Project: &p, Timestamp: time.Now().UTC().Format(rows.Stamp),
	})
	if err != nil {
		return // it always can be encoded
	}
	h.counts.told.Add(1)
	h.news.tell(info.Session, protocol.ChatNews{ConversationID: info.ID, Message: message})
}

// listed returns a conversation as it is listed. It looks for no transcript that
// isn't known yet.
func (h *History) listed(info chat.ConversationInfo) session {
	title, at := info.Title, time.UnixMilli(info.UpdatedAt)
	h.mu.Lock()
	var t *transcript
	if s := h.sessions[info.Session]; s != nil && info.Native != "" {
		t = s.found[native{info.Provider, info.Native}]
	}
	h.mu.Unlock()
	if t != nil {
		seen := t.last()
		title = cmp.Or(title, seen.about.Name())
		if seen.stat.Modified.After(at) {
			at = seen.stat.Modified
		}
	}
	return session{ID: info.ID, Summary: h.o.Masker.Text(cmp.Or(title, untitled)), LastActivity: at.UTC().Format(rows.Stamp)}
}

// project returns the project of a folder.
func (h *History) project(dir string) project {
	return project{ID: projectID(dir), Path: dir, FullPath: dir, DisplayName: filepath.Base(dir)}
}

// projectID is the same for the same folder, also after a restart.
func projectID(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:16])
}

// A projectList is a project with the first page of its sessions (seed 002).
type projectList struct {
	project
	Sessions []session `json:"sessions"` // claude's
	Cursor   []session `json:"cursorSessions"`
	Codex    []session `json:"codexSessions"`
	Gemini   []session `json:"geminiSessions"`
	Opencode []session `json:"opencodeSessions"`
	Meta     struct {
		HasMore bool `json:"hasMore"`
		Total   int  `json:"total"`
	} `json:"sessionMeta"`
}

// pageOf is how many sessions of a project a list has (seed 002).
const pageOf = 20

// projects returns the session's projects, the workspace first and then by path.
func (h *History) projects(of protocol.SessionID) []string {
	dirs := map[string]bool{h.folders[0]: true}
	h.look(of)
	for _, info := range h.shown(of) {
		if _, ok := h.inWorkspace(info.ProjectPath); ok && !info.Archived {
			dirs[info.ProjectPath] = true
		}
	}
	all := make([]string, 0, len(dirs))
	for dir := range dirs {
		all = append(all, dir)
	}
	slices.SortFunc(all, func(a, b string) int { // the workspace is the shortest
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return all
}

// shown returns the session's conversations that are listed: what was found on
// disk only while it is there. The caller has looked.
func (h *History) shown(of protocol.SessionID) []chat.ConversationInfo {
	all := h.o.Conversations.List(of)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.shelf(of)
	return slices.DeleteFunc(all, func(i chat.ConversationInfo) bool {
		return i.Adopted && s.found[native{i.Provider, i.Native}] == nil
	})
}

// inProject returns a project's conversations, the one that was used last first.
func (h *History) inProject(of protocol.SessionID, dir string) []chat.ConversationInfo {
	all := slices.DeleteFunc(h.shown(of), func(i chat.ConversationInfo) bool { return i.Archived || i.ProjectPath != dir })
	h.sortByActivity(all)
	return all
}

// sortByActivity sorts conversations, the one that was used last first.
func (h *History) sortByActivity(all []chat.ConversationInfo) {
	at := make(map[protocol.ConversationID]string, len(all))
	for _, info := range all {
		at[info.ID] = h.listed(info).LastActivity
	}
	slices.SortStableFunc(all, func(a, b chat.ConversationInfo) int {
		return cmp.Or(cmp.Compare(at[b.ID], at[a.ID]), cmp.Compare(a.ID, b.ID))
	})
}

// list returns a page of a project's sessions.
func (h *History) list(of protocol.SessionID, dir string, limit, offset int) projectList {
	all := h.inProject(of, dir)
	list := projectList{
		project: h.project(dir), Sessions: []session{}, Cursor: []session{}, Codex: []session{}, Gemini: []session{}, Opencode: []session{},
	}
	by := map[string]*[]session{"claude": &list.Sessions, "cursor": &list.Cursor, "codex": &list.Codex, "gemini": &list.Gemini, "opencode": &list.Opencode}
	first := min(offset, len(all))
	last := len(all)
	if limit >= 0 {
		last = min(last, first+limit)
	}
	for _, info := range all[first:last] {
		if to := by[info.Provider]; to != nil {
			*to = append(*to, h.listed(info))
		}
	}
	list.Meta.HasMore, list.Meta.Total = last < len(all), len(all)
	return list
}

// progress tells all sockets of a session how far a list of projects is.
func (h *History) progress(of protocol.SessionID, phase string, current, total int, name string) {
	message, err := json.Marshal(struct {
		Kind    protocol.ChatKind `json:"kind"`
		Phase   string            `json:"phase"`
		Current int               `json:"current"`
		Total   int               `json:"total"`
		Project string            `json:"currentProject,omitempty"`
	}{protocol.ChatLoadingProgress, phase, current, total, name})
	if err == nil {
		h.news.tell(of, protocol.ChatNews{Message: message})
	}
}
