// Package route serves what relays ask of a session over HTTP, each request
// under the grant with which it came.
package route

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
)

type grantKey struct{}

// WithGrant returns ctx for requests that come under a verified grant.
func WithGrant(ctx context.Context, grant *jws.Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, grant)
}

// GrantOf returns the verified grant under which a relay's request came. It is
// nil for a request that came by another way.
func GrantOf(r *http.Request) *jws.Grant {
	grant, _ := r.Context().Value(grantKey{}).(*jws.Grant)
	return grant
}

type lifeKey struct{}

// A Life is what ends a stream when its grant ends.
type Life interface {
	// Renew has it go on under a newer grant, which was just verified.
	Renew(grant *jws.Grant) error
}

// WithLife returns ctx for requests of a stream.
func WithLife(ctx context.Context, life Life) context.Context {
	return context.WithValue(ctx, lifeKey{}, life)
}

// LifeOf returns what ends the stream of a request; nil: nothing that could be
// renewed.
func LifeOf(r *http.Request) Life {
	life, _ := r.Context().Value(lifeKey{}).(Life)
	return life
}

// A Handler answers a request about a session. An error that it returns is sent.
type Handler func(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error

// Get serves GET of a path below /sessions/{sid}/ under grants that carry
// capability for the session. Nobody caches the answer.
func Get(mux *http.ServeMux, path string, capability protocol.Capability, serve Handler) {
	method(mux, http.MethodGet, path, capability, serve)
}

// Put is Get for PUT.
func Put(mux *http.ServeMux, path string, capability protocol.Capability, serve Handler) {
	method(mux, http.MethodPut, path, capability, serve)
}

func method(mux *http.ServeMux, name, path string, capability protocol.Capability, serve Handler) {
	mux.HandleFunc(name+" /sessions/{sid}/"+path, func(w http.ResponseWriter, r *http.Request) {
		session, err := Session(r, capability)
		if err == nil {
			w.Header().Set("Cache-Control", "no-store")
			err = serve(w, r, session)
		}
		if err != nil {
			reply.Error(w, err)
		}
	})
}

// GetJSON is Get for an answer that is sent as JSON.
func GetJSON(mux *http.ServeMux, path string, capability protocol.Capability, answer func(protocol.SessionID) any) {
	Get(mux, path, capability, func(w http.ResponseWriter, _ *http.Request, session protocol.SessionID) error {
		reply.JSON(w, http.StatusOK, answer(session))
		return nil
	})
}

// Session returns the session that a request is about. It fails with
// KindForbidden unless the request's grant carries capability for it.
func Session(r *http.Request, capability protocol.Capability) (protocol.SessionID, error) {
	session := protocol.SessionID(r.PathValue("sid"))
	if grant := GrantOf(r); grant == nil || !protocol.ValidID(session) || !grant.Allows(session, "", capability) {
		return "", protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", capability)
	}
	return session, nil
}
