package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/console"
)

// A fakeRelay speaks to the console as a relay does, under two origins as if it
// were two. Its shells echo, and know how to multiply.
type fakeRelay struct {
	*httptest.Server
	other    *httptest.Server // the same terminals
	session  string
	lifetime time.Duration // of grants; set before the first

	mu         sync.Mutex
	users      map[string]fakeUser // by token
	ptys       []*fakePTY
	recordings []fakeRecording
	files      *fakeFiles
	tickets    map[string]fakeTicket
	grants     int
	signIn     string          // name of the provider, empty for none
	closed     bool            // answers 503 to everything about terminals
	down       map[string]bool // hosts that don't answer at all
	sinces     []string
	hosts      []string // where sockets were opened
	admits     []string // grants that tickets were given for
	reauths    []string // grants that sockets were renewed with
	faults     []string // what the console should never do
	approvals  fakeApprovals
	env        fakeEnv
	board      fakeBoard
	chromium   fakeChromium
	tabs       fakeTabs
	chat       fakeChat
	plugins    fakePlugins
	sync       fakeSync

	unknown int                       // so many answers to a change are lost
	made    map[string]protocol.PTYID // terminals, by the key under which they were asked for
}

type fakeUser struct {
	id, name string
	caps     []protocol.Capability
}

type fakeTicket struct {
	user fakeUser
	pty  *fakePTY
}

// newFakeRelay's page may also connect to more origins.
func newFakeRelay(t testing.TB, more ...string) *fakeRelay {
	f := &fakeRelay{
		session:  "ses_demo",
		lifetime: protocol.MaxGrantTTL,
		users: map[string]fakeUser{
			"ut_alice": {"usr_alice", "alice", []protocol.Capability{"view", "control", "shell", "record", "agent", "files.read", "files.write"}},
			"ut_bob":   {"usr_bob", "bob", []protocol.Capability{"view", "control", "files.read"}},
			"ut_carol": {"usr_carol", "carol", []protocol.Capability{"view"}},
		},
		files:   newFakeFiles(),
		tickets: make(map[string]fakeTicket),
		down:    make(map[string]bool),
		made:    make(map[string]protocol.PTYID),
	}
	f.add("pty_1", "usr_alice", "")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /auth/me", f.me)
	mux.HandleFunc("GET /auth/config", f.loginConfig)
	mux.HandleFunc("POST /auth/logout", f.logout)
	mux.HandleFunc("POST /grants", f.grant)
	mux.HandleFunc("GET /sessions/{sid}/ptys", f.list)
	mux.HandleFunc("POST /sessions/{sid}/ptys", f.create)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}", f.remove)
	mux.HandleFunc("POST /pty-session", f.ticket)
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/ws", f.socket)
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/log", f.readLog)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent", f.startAgent)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/{verb}", f.steerAgent)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/recording", f.record)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}/recording", f.record)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/share", f.share)
	mux.HandleFunc("GET /sessions/{sid}/recordings", f.listRecordings)
	mux.HandleFunc("GET /sessions/{sid}/recordings/{rid}", f.recording)
	mux.HandleFunc("GET /sessions/{sid}/approvals", f.listApprovals)
	mux.HandleFunc("GET /sessions/{sid}/approvals/events", f.followApprovals)
	mux.HandleFunc("POST /sessions/{sid}/approvals/{aid}", f.decide)
	mux.HandleFunc("GET /sessions/{sid}/egress/allowlist", f.allowlist)
	mux.HandleFunc("POST /sessions/{sid}/egress/revoke", f.revokeEgress)
	mux.HandleFunc("GET /sessions/{sid}/env", f.listEnv)
	mux.HandleFunc("POST /sessions/{sid}/env", f.applyEnv)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/env", f.applyEnv)
	f.registerFiles(mux)
	f.registerBoard(mux)
	f.registerChromium(mux)
	f.registerTabs(mux)
	f.registerSync(mux)
	f.registerChat(mux)
	previews := f.registerPlugins(t, mux)
	f.Server = httptest.NewServer(f.front(mux))
	f.other = httptest.NewServer(f.front(mux))
	t.Cleanup(f.Server.Close)
	t.Cleanup(f.other.Close)
	mux.Handle("/", console.Handler(console.Options{
		Revision: "test", Extensions: []string{"absent", "present"}, ConnectOrigins: append([]string{f.URL, f.other.URL}, more...), PreviewOrigin: previews,
	}))
	return f
}

// front is what stands before both: a host that is down ends connections
// without a word, and the two origins may ask each other.
func (f *fakeRelay) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		down := f.down[r.Host]
		f.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if origin := r.Header.Get("Origin"); origin == f.URL || origin == f.other.URL {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", "ETag, Fairlead-Position, Location, Upload-Offset")
		}
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Range, Tus-Resumable, Upload-Length, Upload-Metadata, Upload-Offset")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (f *fakeRelay) link(user string) string { return f.URL + "/#token=ut_" + user }

func (f *fakeRelay) host() string { return f.Listener.Addr().String() }

func (f *fakeRelay) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

func (f *fakeRelay) add(id protocol.PTYID, creator protocol.UserID, command string) *fakePTY {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &fakePTY{
		info:    protocol.PTYInfo{ID: id, CreatorID: creator, Command: command, Cols: 80, Rows: 24, CreatedAt: time.Now().UnixMilli()},
		epoch:   protocol.Epoch(len(f.ptys) + 1),
		agent:   protocol.AgentStateMessage{AgentState: protocol.AgentStopped},
		log:     []byte("$ "),
		were:    make(map[protocol.UserID]bool),
		written: make(map[string]uint64),
		sockets: make(map[*fakeSocket]struct{}),
	}
	f.ptys = append(f.ptys, p)
	return p
}

func (f *fakeRelay) pty(id string) *fakePTY {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.ptys {
		if string(p.info.ID) == id {
			return p
		}
	}
	return nil
}

// check complains about what the console should never have done.
func (f *fakeRelay) check(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.faults {
		t.Errorf("the relay complains: %s", fault)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(data)
}

func refuse(w http.ResponseWriter, kind protocol.Kind) {
	answer(w, kind.Status(), map[string]any{"error": protocol.ErrorBody{Message: kind.Text(), Name: kind.Name()}})
}

// user finds the user of a token, or of a grant "gr.<n>.<token>".
func (f *fakeRelay) user(w http.ResponseWriter, r *http.Request, grant bool) (fakeUser, bool) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if strings.HasPrefix(token, "gr.") != grant {
		ok = false
	}
	if grant {
		token = token[strings.LastIndexByte(token, '.')+1:]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u, known := f.users[token]
	if !ok || !known {
		refuse(w, protocol.KindUnauthenticated)
		return u, false
	}
	if grant && f.closed {
		refuse(w, protocol.KindUnavailable)
		return u, false
	}
	return u, true
}

func (f *fakeRelay) me(w http.ResponseWriter, r *http.Request) {
	if u, ok := f.user(w, r, false); ok {
		answer(w, 200, map[string]any{
			"user":     map[string]any{"id": u.id, "name": u.name},
			"sessions": []any{map[string]any{"id": f.session, "dashboard": "demo", "sandbox": "sb_1", "capabilities": u.caps}},
		})
	}
}

func (f *fakeRelay) grant(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, false); ok {
		f.mu.Lock()
		f.grants++
		grant := fmt.Sprintf("gr.%d.%s", f.grants, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		f.mu.Unlock()
		answer(w, 200, map[string]any{"grant": grant, "expires_at": time.Now().Add(f.lifetime).UTC().Format(time.RFC3339)})
	}
}

func (f *fakeRelay) list(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	list := protocol.PTYList{PTYs: []protocol.PTYInfo{}}
	for _, p := range f.ptys {
		list.PTYs = append(list.PTYs, p.info)
	}
	answer(w, 200, list)
}

func (f *fakeRelay) create(w http.ResponseWriter, r *http.Request) {
	u, ok := f.user(w, r, true)
	if !ok {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		f.fault("POST ptys without Idempotency-Key")
	}
	f.mu.Lock()
	id, known := f.made[key]
	lost := f.unknown > 0
	f.unknown = max(f.unknown-1, 0)
	f.mu.Unlock()
	if !known {
		p := f.add(protocol.NewPTYID(), protocol.UserID(u.id), "")
		id = p.info.ID
		f.continueIn(p, r)
		f.mu.Lock()
		f.made[key] = id
		f.mu.Unlock()
	}
	if lost {
		refuse(w, protocol.KindUnknown)
		return
	}
	answer(w, 201, map[string]any{"id": id})
}

func (f *fakeRelay) remove(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.user(w, r, true); !ok {
		return
	}
	p := f.pty(r.PathValue("pid"))
	if p == nil {
		refuse(w, protocol.KindNotFound)
		return
	}
	f.exit(p, 0, "SIGHUP")
	f.mu.Lock()
	f.ptys = slices.DeleteFunc(f.ptys, func(other *fakePTY) bool { return other == p })
	f.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeRelay) ticket(w http.ResponseWriter, r *http.Request) {
	u, ok := f.user(w, r, true)
	if !ok {
		return
	}
	var ask struct {
		SessionID string `json:"session_id"`
		PTYID     string `json:"pty_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		refuse(w, protocol.KindInvalid)
		return
	}
	p := f.pty(ask.PTYID)
	if p == nil {
		refuse(w, protocol.KindNotFound)
		return
	}
	f.mu.Lock()
	ticket := "t" + strconv.Itoa(len(f.tickets))
	f.admits = append(f.admits, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	f.tickets[ticket] = fakeTicket{u, p}
	f.mu.Unlock()
	answer(w, 200, map[string]any{
		"ws_url":     fmt.Sprintf("ws://%s/sessions/%s/ptys/%s/ws", r.Host, f.session, ask.PTYID),
		"ticket":     ticket,
		"expires_at": time.Now().Add(protocol.TicketTTL).UTC().Format(time.RFC3339),
	})
}
