package controlplane

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
)

// openAPI documents every route of both listeners; a test compares them.
//
//go:embed openapi.yaml
var openAPI []byte

// openAPIJSON returns the document as it is served.
var openAPIJSON = sync.OnceValues(func() ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(openAPI, &doc); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return json.Marshal(doc)
})

// getOpenAPI serves the document, without members of ours.
func (s *Server) getOpenAPI(w *web.Writer, _ *http.Request) error {
	data, err := openAPIJSON()
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-cache")
	return w.Document(http.StatusOK, json.RawMessage(data))
}
