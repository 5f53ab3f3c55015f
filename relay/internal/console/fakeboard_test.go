package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// fakeBoard is what the control plane knows of accounts and of what is attached,
// and which tools terminals have. Guarded by the relay's mu.
type fakeBoard struct {
	roles       map[string]string // by user, else owner
	configured  []string
	accounts    map[string][]fakeAccount // by user
	attachments []fakeAttachment
	tools       []string
	refused     error  // the answer to every request about integrations
	consent     string // where people agree
}

type fakeAccount struct {
	ID       string `json:"id"`
	Provider string `json:"provider"`
	Name     string `json:"name"`
	Expired  bool   `json:"needs_reconnect"`
}

type fakeAttachment struct {
	SessionID string          `json:"session_id"`
	PTYID     protocol.PTYID  `json:"pty_id"`
	Provider  string          `json:"provider"`
	AccountID string          `json:"account_id"`
	Account   string          `json:"account_name"`
	UserID    string          `json:"account_user"`
	Expired   bool            `json:"needs_reconnect"`
	Policy    json.RawMessage `json:"policy"`
}

var fakeProviders = []string{"gmail", "github", "google_drive", "google_calendar"}

func (f *fakeRelay) registerBoard(mux *http.ServeMux) {
	f.board.configured = []string{"github", "gmail"}
	f.board.accounts = make(map[string][]fakeAccount)
	f.board.roles = make(map[string]string)
	f.board.tools = []string{"browser_navigate", "terminal_read"}
	mux.HandleFunc("GET /dashboards/{id}/members", f.asPerson(f.listMembers))
	mux.HandleFunc("GET /dashboards/{id}/integrations", f.asPerson(f.listAttachments))
	mux.HandleFunc("PUT /dashboards/{id}/terminals/{pty}/integrations/{provider}", f.asPerson(f.attachAccount))
	mux.HandleFunc("DELETE /dashboards/{id}/terminals/{pty}/integrations/{provider}", f.asPerson(f.detachAccount))
	mux.HandleFunc("GET /integrations", f.asPerson(f.listAccounts))
	mux.HandleFunc("POST /integrations/{provider}/connect", f.asPerson(f.connectAccount))
	mux.HandleFunc("DELETE /integrations/accounts/{id}", f.asPerson(f.disconnectAccount))
	mux.HandleFunc("GET /sessions/{sid}/mcp/tools", f.listTools)
}

// asPerson serves a route of the control plane with mu held.
func (f *fakeRelay) asPerson(serve func(http.ResponseWriter, *http.Request, fakeUser)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u, ok := f.user(w, r, false)
		if !ok {
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.board.refused != nil {
			answer(w, protocol.KindOf(f.board.refused).Status(), map[string]any{"error": protocol.AsError(f.board.refused).Body()})
			return
		}
		if id := r.PathValue("id"); r.Method != http.MethodDelete && id != "" && id != "demo" {
			f.faults = append(f.faults, "dashboard "+id)
		}
		serve(w, r, u)
	}
}

func (f *fakeRelay) role(u fakeUser) string {
	if role := f.board.roles[u.id]; role != "" {
		return role
	}
	return "owner"
}

func (f *fakeRelay) listMembers(w http.ResponseWriter, _ *http.Request, _ fakeUser) {
	var members []any
	for _, u := range f.users {
		members = append(members, map[string]any{"user": u.id, "name": u.name, "role": f.role(u)})
	}
	answer(w, 200, map[string]any{"members": members})
}

func (f *fakeRelay) listAttachments(w http.ResponseWriter, _ *http.Request, _ fakeUser) {
	answer(w, 200, map[string]any{"attachments": f.board.attachments})
}

func (f *fakeRelay) listAccounts(w http.ResponseWriter, _ *http.Request, u fakeUser) {
	var providers []any
	for _, name := range fakeProviders {
		providers = append(providers, map[string]any{"name": name, "set_up": slices.Contains(f.board.configured, name)})
	}
	answer(w, 200, map[string]any{"providers": providers, "accounts": f.board.accounts[u.id]})
}

func (f *fakeRelay) connectAccount(w http.ResponseWriter, _ *http.Request, _ fakeUser) {
	http.SetCookie(w, &http.Cookie{Name: "fairlead_connect", Value: "1", Path: "/"})
	answer(w, 200, map[string]string{"url": f.board.consent})
}

func (f *fakeRelay) disconnectAccount(w http.ResponseWriter, r *http.Request, u fakeUser) {
	id := r.PathValue("id")
	f.board.accounts[u.id] = slices.DeleteFunc(f.board.accounts[u.id], func(a fakeAccount) bool { return a.ID == id })
	f.board.attachments = slices.DeleteFunc(f.board.attachments, func(a fakeAttachment) bool { return a.AccountID == id })
	w.WriteHeader(http.StatusNoContent)
}

// attached finds what is attached to the terminal of a request.
func (f *fakeRelay) attached(r *http.Request, session string) int {
	return slices.IndexFunc(f.board.attachments, func(a fakeAttachment) bool {
		return a.SessionID == session && string(a.PTYID) == r.PathValue("pty") && a.Provider == r.PathValue("provider")
	})
}

func (f *fakeRelay) attachAccount(w http.ResponseWriter, r *http.Request, u fakeUser) {
	var body struct {
		SessionID string          `json:"session_id"`
		AccountID string          `json:"account_id"`
		Policy    json.RawMessage `json:"policy"`
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	at := slices.IndexFunc(f.board.accounts[u.id], func(a fakeAccount) bool { return a.ID == body.AccountID })
	if err != nil || body.SessionID != f.session || at < 0 || f.role(u) == "viewer" {
		f.faults = append(f.faults, fmt.Sprintf("attach %+v by %s: %v", body, u.id, err))
		refuse(w, protocol.KindInvalid)
		return
	}
	a := fakeAttachment{
		SessionID: body.SessionID, PTYID: protocol.PTYID(r.PathValue("pty")), Provider: r.PathValue("provider"), AccountID: body.AccountID,
		Account: f.board.accounts[u.id][at].Name, UserID: u.id, Policy: body.Policy,
	}
	if was := f.attached(r, body.SessionID); was >= 0 {
		f.board.attachments[was] = a
	} else {
		f.board.attachments = append(f.board.attachments, a)
		f.toolsOf(a.PTYID, append(slices.Clone(f.board.tools), a.Provider+"_search"))
	}
	answer(w, 200, a)
}

func (f *fakeRelay) detachAccount(w http.ResponseWriter, r *http.Request, u fakeUser) {
	at := f.attached(r, r.URL.Query().Get("session_id"))
	if at < 0 || f.role(u) == "viewer" {
		f.faults = append(f.faults, fmt.Sprintf("detach %s by %s", r.URL, u.id))
		refuse(w, protocol.KindNotFound)
		return
	}
	name := f.board.attachments[at].Provider + "_search"
	f.board.attachments = slices.Delete(f.board.attachments, at, at+1)
	f.toolsOf(protocol.PTYID(r.PathValue("pty")), slices.DeleteFunc(slices.Clone(f.board.tools), func(tool string) bool { return tool == name }))
	w.WriteHeader(http.StatusNoContent)
}

// toolsOf tells that the tools are others now. It is called with mu held.
func (f *fakeRelay) toolsOf(id protocol.PTYID, tools []string) {
	before := len(f.board.tools)
	f.board.tools = tools
	for _, p := range f.ptys {
		if p.info.ID == id {
			p.broadcast(protocol.ToolCountChanged{OldCount: before, NewCount: len(tools), Timestamp: 1})
		}
	}
}

func (f *fakeRelay) listTools(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapMCP); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list := protocol.ToolList{Tools: []protocol.Tool{}}
	for _, name := range f.board.tools {
		list.Tools = append(list.Tools, protocol.Tool{Name: name, Description: "Does " + name, InputSchema: json.RawMessage(`{}`)})
	}
	answer(w, 200, list)
}
