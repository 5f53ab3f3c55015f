package devstack

import (
	"slices"
	"testing"
)

// Relays list the stack's own extension beside those that were asked for, once.
func TestExtensionIDs(t *testing.T) {
	own := &readyExtension{ID: "own"}
	for _, test := range []struct {
		own        *readyExtension
		told, want []string
	}{
		{nil, nil, nil},
		{nil, []string{"a"}, []string{"a"}},
		{own, nil, []string{"own"}},
		{own, []string{"a"}, []string{"a", "own"}},
		{own, []string{"own", "a"}, []string{"own", "a"}},
	} {
		if got := test.own.among(test.told); !slices.Equal(got, test.want) {
			t.Errorf("%v beside %v: %v, want %v", test.own, test.told, got, test.want)
		}
	}
	if _, err := decodeExtension([]byte("nothing")); err == nil {
		t.Error("what makes no sense is an extension")
	}
}
