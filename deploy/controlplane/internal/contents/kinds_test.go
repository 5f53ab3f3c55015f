package contents

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
)

// FuzzItem: what an item form takes, it takes again and leaves as it is.
func FuzzItem(f *testing.F) {
	f.Add("note", []byte(`{"text":"a","color":"#abcdef","x":1,"y":2}`))
	f.Add("todo", []byte(`{"title":"t","items":[{"text":"a","done":true}]}`))
	f.Add("browser", []byte(`{"url":"https://a.b/c?d#e","title":"t","x":1}`))
	f.Add("terminal", []byte(`{"name":"n","command":"c","session_id":"s","pty_id":"p","y":2}`))
	f.Add("integration", []byte(`{"provider":"gmail"}`))
	f.Add("edge", []byte(`{"from":"a","to":"b","label":"l"}`))
	f.Add("layout", []byte(`{"a": [1, {"b": null}]}`))
	f.Fuzz(func(t *testing.T, kind string, raw []byte) {
		form := func(raw []byte) (json.RawMessage, error) { return Form(store.ItemKind(kind), raw) }
		once, err := form(raw)
		if err != nil {
			return
		}
		if twice, err := form(once); err != nil || string(twice) != string(once) {
			t.Errorf("%q became %q, and that %q, %v", raw, once, twice, err)
		}
	})
}
