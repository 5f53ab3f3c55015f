package devstack

import (
	"encoding/json"
	"slices"
)

// A readyExtension is the browser extension that was made for the stack's relays.
type readyExtension struct {
	ID  string `json:"id"`
	Dir string `json:"dir"`
}

// decodeExtension reads what the control plane's program says of the extension
// that it has written.
func decodeExtension(out []byte) (*readyExtension, error) {
	var made readyExtension
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, err
	}
	return &made, nil
}

// among returns the ids of the extensions that relays list: those that the stack
// was told of, and its own, if there is one.
func (e *readyExtension) among(told []string) []string {
	if e == nil || slices.Contains(told, e.ID) {
		return told
	}
	return append(slices.Clone(told), e.ID)
}
