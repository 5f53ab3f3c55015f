// Package reply writes the JSON answers of the agent's HTTP routes.
package reply

import (
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
)

// JSON answers with v.
func JSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// Error answers with err, under the status of its kind.
func Error(w http.ResponseWriter, err error) { ErrorAs(w, protocol.AsError(err).Kind.Status(), err) }

// ErrorAs answers with err under another status than that of its kind. Headers
// that described another body are dropped.
func ErrorAs(w http.ResponseWriter, status int, err error) {
	for _, name := range []string{"Content-Disposition", "ETag", "Content-Length"} {
		w.Header().Del(name)
	}
	JSON(w, status, map[string]protocol.ErrorBody{"error": protocol.AsError(err).Body()})
}
