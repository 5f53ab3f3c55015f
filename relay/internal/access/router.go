package access

import (
	"net/http"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A Router takes routes as [http.ServeMux] does. The relay's routes are
// registered with one, so that a test can see which there are.
type Router interface {
	Handle(pattern string, handler http.Handler)
	HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request))
}

// Methods is a Router that knows the methods of each path, so that any other is
// refused as such: without it the console, which has what is left, would say
// that there is nothing.
type Methods struct {
	router Router
	of     map[string][]string // by path
	paths  []string
}

// NewMethods returns Methods that hand on to router what they are given.
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

// RefuseOthers registers, for each path, an answer to the methods that it hasn't.
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

// allMethods are those that are refused one by one where that must be.
var allMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// covered reports whether another path has a wildcard for a part that path
// spells out: a mux doesn't decide between a method there and any method here.
func (m *Methods) covered(path string) bool {
	return slices.ContainsFunc(m.paths, func(other string) bool {
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
