package sidebarapi

import (
	"net/http/httputil"

	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

// Register adds the routes. It is called once, before any is used.
func (a *API) Register(mux access.Router) {
	options := reverseproxy.Options{
		Requests: a.Requests, What: reverseproxy.API, AnswerTimeout: answerTimeout, Log: a.Log,
		Rewrite:  func(r *httputil.ProxyRequest) { reverseproxy.NarrowRequest(r.Out.Header) },
		Response: reverseproxy.NarrowAnswer,
		Refuse:   a.refuseRead,
	}
	a.proxy = reverseproxy.NewProxy(options)
	options.Events = true // a stream stays, and mostly nothing comes
	a.streams = reverseproxy.NewProxy(options)
	mux.HandleFunc("POST /sidebar-command", a.change(command))
	mux.HandleFunc("POST /sidebar-chat/clear", a.change(clearChat))
	mux.HandleFunc("POST /sidebar-queue/dismiss", a.change(dismiss))
	mux.HandleFunc("POST /sidebar-agent/stop", a.change(stop))
	mux.HandleFunc("POST /sidebar-agent/kill", a.change(kill))
	mux.HandleFunc("POST /sidebar-agent/answer", a.answer)
	mux.HandleFunc("POST /sidebar-tabs/switch", a.change(switchTab))
	mux.HandleFunc("POST /sidebar-session/new", a.change(renew))
	mux.HandleFunc("POST /sidebar-agent/event", a.event)
	mux.HandleFunc("POST /sse-session", a.openStreams)
	for route, path := range map[string]string{
		"/sidebar-chat": "sidebar/chat", "/sidebar-tabs": tabsPath, "/sidebar-session": "sidebar/session",
		"/sidebar-session/list": "sidebar/sessions", "/activity/history": "activity/history",
	} {
		mux.HandleFunc("GET "+route, a.read(path))
	}
	mux.HandleFunc("GET /sidebar-chat/stream", a.stream("sidebar/chat/stream", 1))
	mux.HandleFunc("GET /activity/stream", a.stream("activity/stream", 0))
}
