package store

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestEdges: an edge joins two items of its own dashboard, once however many
// draw it at the same time, and goes with either of them.
func TestEdges(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		add := func(dashboard, id string, kind ItemKind, body any) (Item, error) {
			raw, err := json.Marshal(body)
			must(t, err)
			return s.Contents.AddItem(t.Context(), Item{ID: id, Dashboard: dashboard, Kind: kind, Body: raw, UpdatedBy: protocol.AgentHolder})
		}
		for _, id := range []string{"a", "b", "c"} {
			_, err := add("dash_1", id, ItemNote, 1)
			must(t, err)
		}
		added := 0
		for _, err := range parallel(8, func(int) error {
			_, err := add("dash_1", "", ItemEdge, Edge{"a", "b"})
			return err
		}) {
			if err == nil {
				added++
			} else {
				wantKind(t, err, protocol.KindConflict)
			}
		}
		bc, err := add("dash_1", "bc", ItemEdge, Edge{"b", "c"})
		if edge, e := EdgeOf(bc); err != nil || e != nil || edge != (Edge{"b", "c"}) || added != 1 {
			t.Errorf("%+v, %v, %v; %d of one edge", bc, err, e, added)
		}
		if _, err := EdgeOf(Item{Kind: ItemNote, Body: bc.Body}); err == nil {
			t.Error("a note is an edge")
		}
		for _, bad := range []struct {
			body any
			kind protocol.Kind
		}{
			{Edge{"a", "x"}, protocol.KindNotFound}, {Edge{"x", "a"}, protocol.KindNotFound}, {Edge{"a", "a"}, protocol.KindInvalid},
			{Edge{"a", "bc"}, protocol.KindInvalid}, {Edge{}, protocol.KindInvalid}, {[]int{1}, protocol.KindInvalid},
		} {
			_, err := add("dash_1", "", ItemEdge, bad.body)
			wantKind(t, err, bad.kind)
		}
		_, err = add("dash_2", "", ItemEdge, Edge{"a", "b"})
		wantKind(t, err, protocol.KindNotFound)
		// An edge may be drawn anew, but not over another.
		_, err = s.Contents.UpdateItem(t.Context(), Item{ID: "bc", Dashboard: "dash_1", Body: []byte(`{"from":"a","to":"b"}`), UpdatedBy: "usr_alice"}, 1)
		wantKind(t, err, protocol.KindConflict)
		_, err = s.Contents.UpdateItem(t.Context(), Item{ID: "bc", Dashboard: "dash_1", Body: []byte(`{"from":"c","to":"b"}`), UpdatedBy: "usr_alice"}, 1)
		must(t, err)

		must(t, s.Contents.RemoveItem(t.Context(), "dash_1", "a"))
		items, err := s.Contents.Items(t.Context(), "dash_1")
		if err != nil || len(items) != 3 || items[2].ID != "bc" {
			t.Errorf("%+v, %v", items, err)
		}
		must(t, s.Contents.RemoveItem(t.Context(), "dash_1", "b"))
		_, err = s.Contents.Item(t.Context(), "dash_1", "bc")
		wantKind(t, err, protocol.KindNotFound)
	})
}
