package history

import (
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// An endpoint is a route of the web client. Its answer is sent as it is, or not at
// all when it is nil: then it was sent.
type endpoint struct {
	method, path string // parts in braces match one part each
	needs        protocol.Capability
	answer       func(api, *call) (any, error)
}

// endpoints are all of them. The first that matches counts: "sessions" is the name
// of no provider.
var endpoints = []endpoint{
	{"GET", "projects", protocol.CapView, api.getProjects},
	{"GET", "projects/archived", protocol.CapView, api.getArchivedProjects},
	{"GET", "projects/{project}/sessions", protocol.CapView, api.getProjectSessions},
	{"GET", "projects/{project}/sessions/{id}/token-usage", protocol.CapView, api.getTokenUsage},
	{"POST", "projects/{project}/upload-images", protocol.CapChat, api.uploadImages},
	{"GET", "assets/{asset}", protocol.CapView, api.getAsset},
	{"GET", "providers/capabilities", protocol.CapView, api.getAllCapabilities},
	{"GET", "providers/search/sessions", protocol.CapView, api.searchSessions},
	{"GET", "providers/sessions/archived", protocol.CapView, api.getArchived},
	{"GET", "providers/sessions/running", protocol.CapView, api.getRunning},
	{"GET", "providers/sessions/recent", protocol.CapView, api.getRecent},
	{"GET", "providers/sessions/{id}", protocol.CapView, api.getSession},
	{"PUT", "providers/sessions/{id}", protocol.CapChat, api.renameSession},
	{"DELETE", "providers/sessions/{id}", protocol.CapChat, api.deleteSession},
	{"POST", "providers/sessions/{id}/restore", protocol.CapChat, api.restoreSession},
	{"GET", "providers/sessions/{id}/messages", protocol.CapView, api.getMessages},
	{"GET", "providers/sessions/{id}/token-usage", protocol.CapView, api.getUsage},
	{"GET", "providers/sessions/{id}/provider-id", protocol.CapView, api.getNothing}, // it stays in the sandbox
	{"GET", "providers/{provider}/capabilities", protocol.CapView, api.getCapabilities},
	{"GET", "providers/{provider}/models", protocol.CapView, api.getModels},
	{"GET", "providers/{provider}/auth/status", protocol.CapView, api.getAuthStatus},
}

// Routes implements [feature.Router].
func (h *History) Routes(mux *http.ServeMux) {
	mux.HandleFunc("/sessions/{sid}/api/{rest...}", api{h}.serve)
}

// serve answers the web client.
func (h api) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	c := &call{w: w, r: r}
	e, err := c.find()
	if err == nil {
		c.session, err = route.Session(r, e.needs)
	}
	var answer any
	if err == nil {
		answer, err = e.answer(h, c)
	}
	switch {
	case err != nil:
		refuse(w, err)
	case answer != nil:
		reply.JSON(w, http.StatusOK, answer)
	}
}

// find returns the endpoint of a request.
func (c *call) find() (endpoint, error) {
	path := strings.Split(strings.Trim(c.r.PathValue("rest"), "/"), "/")
	other := false
	for _, e := range endpoints {
		parts, ok := match(strings.Split(e.path, "/"), path)
		if !ok {
			continue
		}
		if e.method == c.r.Method || (e.method == http.MethodGet && c.r.Method == http.MethodHead) {
			c.parts = parts
			return e, nil
		}
		other = true
	}
	if other {
		return endpoint{}, &fault{http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "Method not allowed."}
	}
	return endpoint{}, errNoRoute
}

// match returns the parts of path that a pattern has names for.
func match(pattern, path []string) (map[string]string, bool) {
	if len(pattern) != len(path) {
		return nil, false
	}
	parts := make(map[string]string)
	for i, p := range pattern {
		name, named := strings.CutPrefix(p, "{")
		switch {
		case named:
			parts[strings.TrimSuffix(name, "}")] = path[i]
		case p != path[i]:
			return nil, false
		}
	}
	return parts, true
}
