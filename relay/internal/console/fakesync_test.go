package console_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// fakeSync is what a sandbox and its control plane know of signed-in sites. Guarded by
// the relay's mu.
type fakeSync struct {
	state    op.SyncState
	asked    int                                     // how often that was read
	commands []op.Body                               // that were done or refused
	refused  error                                   // the answer to the next command
	away     bool                                    // the sandbox has no tunnel
	openings map[protocol.PairingID]*ecdh.PrivateKey // pairings that wait
}

func (f *fakeRelay) registerSync(mux *http.ServeMux) {
	f.sync.state = op.SyncState{Policy: op.SyncPolicyState{Policy: "sync-all", Domains: []op.SyncDomain{}}, Pairings: []op.SyncPairing{}, Sites: []op.SyncSite{}}
	f.sync.openings = make(map[protocol.PairingID]*ecdh.PrivateKey)
	mux.HandleFunc("GET /sessions/{sid}/sync", f.readSync)
	mux.HandleFunc("POST /commands", f.syncCommand)
}

// readSync tells addresses to whoever may pair, as a sandbox does.
func (f *fakeRelay) readSync(w http.ResponseWriter, r *http.Request) {
	u, ok := f.may(w, r, protocol.CapView)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sync.asked++
	if f.sync.away {
		refuse(w, protocol.KindUnavailable)
		return
	}
	state := f.sync.state
	state.Pairings = slices.Clone(state.Pairings)
	for i := range state.Pairings {
		if !slices.Contains(u.caps, protocol.CapSync) {
			state.Pairings[i].URL = ""
		}
	}
	answer(w, 200, state)
}

// syncCommand does what the control plane has a sandbox do.
func (f *fakeRelay) syncCommand(w http.ResponseWriter, r *http.Request) {
	u, ok := f.user(w, r, false)
	if !ok {
		return
	}
	var asked struct {
		Target protocol.CommandTarget `json:"target"`
		Op     json.RawMessage        `json:"op"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || string(asked.Target.SessionID) != f.session {
		f.fault("a command for %q: %v", asked.Target.SessionID, err)
	}
	spec, body, err := op.DecodeAsked(asked.Op)
	if err == nil && (r.Header.Get("Idempotency-Key") == "" || !slices.Contains(u.caps, spec.Needs)) {
		f.fault("%s by %s with key %q", spec.Kind, u.id, r.Header.Get("Idempotency-Key"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var result *protocol.SyncResult
	if err == nil {
		f.sync.commands = append(f.sync.commands, body)
		if err, f.sync.refused = f.sync.refused, nil; err == nil {
			result, err = f.sync.do(protocol.UserID(u.id), body)
		}
	}
	if err != nil {
		answer(w, protocol.KindOf(err).Status(), map[string]any{"commandId": "cmd_1", "status": "error", "error": protocol.AsError(err).Body()})
		return
	}
	answer(w, 200, map[string]any{"commandId": "cmd_1", "status": "ok", "result": protocol.OpResult{SyncResult: result}})
}

func (s *fakeSync) do(user protocol.UserID, asked op.Body) (*protocol.SyncResult, error) {
	find := func(id protocol.PairingID) (int, error) {
		if i := slices.IndexFunc(s.state.Pairings, func(p op.SyncPairing) bool { return p.ID == id }); i >= 0 {
			return i, nil
		}
		return 0, protocol.Errorf(protocol.KindNotFound, "the session has no such pairing")
	}
	switch body := asked.(type) {
	case *op.SyncAccept:
		i, err := find(body.Pairing)
		if err == nil {
			s.state.Pairings[i].Versions = body.Versions
		}
		return nil, err
	case *op.SyncUnpair:
		i, err := find(body.Pairing)
		if err == nil {
			s.state.Pairings = slices.Delete(s.state.Pairings, i, i+1)
			s.state.Sites = slices.DeleteFunc(s.state.Sites, func(site op.SyncSite) bool { return site.Pairing == body.Pairing })
		}
		return nil, err
	case *op.SyncPolicy:
		s.state.Policy = op.SyncPolicyState{Policy: body.Policy, Domains: body.Domains}
		if body.Policy == "blocklist" && len(body.Domains) == 0 {
			s.state.Policy.Policy = "sync-all"
		}
		return nil, nil
	case *op.SyncPair:
		return s.pair(user, body)
	}
	return nil, protocol.Errorf(protocol.KindUnsupported, "%T", asked)
}

// pair makes real keys, so that what the page carries between both sides is right.
func (s *fakeSync) pair(user protocol.UserID, asked *op.SyncPair) (*protocol.SyncResult, error) {
	if asked.Step == op.SyncBegin {
		private, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		id := protocol.NewPairingID()
		s.openings[id] = private
		return &protocol.SyncResult{Pairing: id, SinkPublicKey: private.PublicKey().Bytes(), SinkHostname: "ses_demo.sb_1", ExpiresAt: time.Now().Add(10 * time.Minute).UnixMilli()}, nil
	}
	private := s.openings[asked.Pairing]
	delete(s.openings, asked.Pairing)
	if private == nil {
		return nil, protocol.Errorf(protocol.KindNotFound, "no such pairing waits to be finished: begin another one")
	}
	code, err := seal.ParseCode(asked.Code)
	if err != nil {
		return nil, err
	}
	key, err := seal.Pair(private, asked.SourcePublicKey, code)
	if err != nil {
		return nil, err
	}
	if key.Fingerprint() != asked.Fingerprint {
		return nil, protocol.Errorf(protocol.KindUnauthenticated, "the fingerprint differs: the code is another one, or somebody is in between; the pairing is void")
	}
	made := op.SyncPairing{
		ID: asked.Pairing, User: user, Name: asked.SourceHostname, Mode: "paired", Fingerprint: key.Fingerprint(),
		URL: "https://relay.example" + op.SyncPath("sb_1", "abcdefghijklmnopqrstuvwxyz"), Versions: []int{1}, PairedAt: time.Now().UnixMilli(),
	}
	s.state.Pairings = append(s.state.Pairings, made)
	return &protocol.SyncResult{Pairing: made.ID, URL: made.URL, Fingerprint: made.Fingerprint}, nil
}
