package access

import "net/http"

// A Router takes routes as [http.ServeMux] does. The relay's routes are
// registered with one, so that a test can see which there are.
type Router interface {
	Handle(pattern string, handler http.Handler)
	HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request))
}
