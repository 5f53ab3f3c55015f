package openapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFailuresAreDescribed: every operation says what a failure looks like, and
// what changes something in a session says that the session may be over.
func TestFailuresAreDescribed(t *testing.T) {
	var document struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Ref string `json:"$ref"`
			}
		}
	}
	if err := json.Unmarshal(Document, &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Paths) == 0 {
		t.Fatal("no paths")
	}
	for path, operations := range document.Paths {
		for method, operation := range operations {
			if ref := operation.Responses["default"].Ref; ref != "#/components/responses/Failure" && ref != "#/components/responses/PanelFailure" {
				t.Errorf("%s %s: default is %q", method, path, ref)
			}
			if method == "get" || method == "options" || !strings.HasPrefix(path, "/sessions/{sid}/") {
				continue
			}
			if ref := operation.Responses["410"].Ref; ref != "#/components/responses/Ended" {
				t.Errorf("%s %s: 410 is %q", method, path, ref)
			}
		}
	}
}
