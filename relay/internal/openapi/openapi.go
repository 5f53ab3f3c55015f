// Package openapi serves the description of the relay's public routes.
package openapi

import (
	_ "embed"
	"net/http"

	"github.com/fairlead/fairlead/relay/internal/access"
)

// Document is an OpenAPI 3.1 description. The control plane describes its own
// routes, which the relay only forwards.
//
//go:embed openapi.json
var Document []byte

// Register adds GET /openapi.json.
func Register(mux access.Router) {
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		access.WriteVerbatim(w, http.StatusOK, Document)
	})
}
