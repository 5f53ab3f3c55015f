package access

import (
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A Router takes routes as [http.ServeMux] does. The relay registers its routes
// through it so that a test can list them.
type Router interface {
	Handle(pattern string, handler http.Handler)
	HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request))
}

// Methods is a Router that knows the methods of each path and answers any other
// with 405. Otherwise the console, which gets all other paths, would answer
// 404.
type Methods struct {
	router Router
	of     map[string][]string // by path
	paths  []string
}

// NewMethods returns Methods that register routes with router.
func NewMethods(router Router) *Methods { return &Methods{router: router, of: map[string][]string{}} }

// Handle implements [Router].
func (m *Methods) Handle(pattern string, handler http.Handler) {
	m.note(pattern)
	m.router.Handle(pattern, handler)
}

// HandleFunc implements [Router].
func (m *Methods) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	m.note(pattern)
	m.router.HandleFunc(pattern, handler)
}

func (m *Methods) note(pattern string) {
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		method, path = "", pattern // every method
	}
	if _, known := m.of[path]; !known {
		m.paths = append(m.paths, path)
	}
	m.of[path] = append(m.of[path], method)
}

// RefuseOthers registers, for each path, an answer to its other methods.
func (m *Methods) RefuseOthers() {
	for _, path := range m.paths {
		methods := slices.Clone(m.of[path])
		if slices.Contains(methods, "") {
			continue
		}
		if slices.Contains(methods, http.MethodGet) && !slices.Contains(methods, http.MethodHead) {
			methods = append(methods, http.MethodHead)
		}
		slices.Sort(methods)
		allow := strings.Join(methods, ", ")
		refuse := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", allow)
			WriteError(w, protocol.Errorf(protocol.KindMethod, "method not allowed"))
		}
		if !m.covered(path) {
			m.router.HandleFunc(path, refuse)
			continue
		}
		for _, method := range allMethods {
			if !slices.Contains(methods, method) {
				m.router.HandleFunc(method+" "+path, refuse)
			}
		}
	}
}

// allMethods are those that are refused one by one for covered paths.
var allMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// covered reports whether another path has a wildcard where path has a literal, or
// stands for all paths below it, path among them: a mux can't order a pattern with a
// method there and one without here.
func (m *Methods) covered(path string) bool {
	return slices.ContainsFunc(m.paths, func(other string) bool {
		if other != "/" && other != path && strings.HasSuffix(other, "/") && strings.HasPrefix(path, other) {
			return true
		}
		ours, theirs := strings.Split(path, "/"), strings.Split(other, "/")
		if other == path || len(ours) != len(theirs) {
			return false
		}
		for i, part := range theirs {
			if !strings.HasPrefix(part, "{") && part != ours[i] {
				return false
			}
		}
		return true
	})
}
