package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

func TestDashboards(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must(t, s.Boards.AddDashboard(t.Context(), Dashboard{ID: "dash_3", Name: "Three", Sandbox: "sb_3"}, "usr_bob"))
		wantKind(t, s.Boards.AddDashboard(t.Context(), Dashboard{ID: "dash_3", Name: "n"}, "usr_bob"), protocol.KindConflict)
		wantKind(t, s.Boards.AddDashboard(t.Context(), Dashboard{ID: "dash_4", Name: "n", Sandbox: "sb_3"}, "usr_bob"), protocol.KindConflict)
		wantKind(t, s.Boards.AddDashboard(t.Context(), Dashboard{ID: "dash_4", Name: "n"}, "usr_x"), protocol.KindNotFound)
		wantKind(t, s.Boards.AddDashboard(t.Context(), Dashboard{ID: "a b", Name: "n"}, "usr_bob"), protocol.KindInvalid)

		d, m, err := s.Boards.DashboardFor(t.Context(), "usr_bob", "dash_3")
		if want := (Dashboard{"dash_3", "Three", "sb_3", epoch}); err != nil || d != want || m != (Member{"usr_bob", "Bob", RoleOwner, ""}) {
			t.Errorf("%+v, %+v, %v", d, m, err)
		}
		if d, m, err := s.Boards.DashboardOf(t.Context(), "usr_bob", "sb_1"); err != nil || d.ID != "dash_1" || m.Capabilities != "view control" {
			t.Errorf("%+v, %+v, %v", d, m, err)
		}
		_, _, err = s.Boards.DashboardFor(t.Context(), "usr_alice", "dash_3")
		wantKind(t, err, protocol.KindNotFound)
		_, _, err = s.Boards.DashboardOf(t.Context(), "usr_alice", "sb_3")
		wantKind(t, err, protocol.KindNotFound)
		of, err := s.Boards.Dashboards(t.Context(), "usr_bob")
		if err != nil || len(of) != 3 || of[0].ID != "dash_1" || of[0].Role != RoleEditor || of[2].Role != RoleOwner {
			t.Errorf("%+v, %v", of, err)
		}
		if all, err := s.Boards.AllDashboards(t.Context(), "dash_1", 1); err != nil || len(all) != 1 || all[0].ID != "dash_2" {
			t.Errorf("%+v, %v", all, err)
		}
		must(t, s.Boards.RenameDashboard(t.Context(), "dash_3", "Drei"))
		wantKind(t, s.Boards.RenameDashboard(t.Context(), "dash_9", "n"), protocol.KindNotFound)

		must(t, s.Boards.RemoveDashboard(t.Context(), "dash_1"))
		wantKind(t, s.Boards.RemoveDashboard(t.Context(), "dash_1"), protocol.KindNotFound)
		_, err = s.Sessions.Session(t.Context(), "usr_alice", "ses_1")
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_alice", RoleOwner, ""), protocol.KindNotFound)
		must(t, s.Boards.BindSandbox(t.Context(), "dash_3", "sb_1")) // it is free again
	})
}

func TestBindSandbox(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		wantKind(t, s.Boards.BindSandbox(t.Context(), "dash_1", "sb_2"), protocol.KindConflict)
		wantKind(t, s.Boards.BindSandbox(t.Context(), "dash_9", "sb_9"), protocol.KindNotFound)
		must(t, s.Boards.BindSandbox(t.Context(), "dash_1", "sb_1"))
		if _, err := s.Sessions.Session(t.Context(), "usr_alice", "ses_1"); err != nil {
			t.Errorf("nothing has changed, but the session: %v", err)
		}
		must(t, s.Boards.BindSandbox(t.Context(), "dash_1", "sb_9"))
		_, err := s.Sessions.Session(t.Context(), "usr_alice", "ses_1")
		wantKind(t, err, protocol.KindEnded)
		must(t, s.Boards.BindSandbox(t.Context(), "dash_1", ""))
		if b, err := s.Fleet.Sandbox(t.Context(), "sb_9"); err != nil || b.Dashboard != "" {
			t.Errorf("%+v, %v", b, err)
		}
		// Of many dashboards that want one sandbox, one gets it.
		for i := range 10 {
			must(t, s.Boards.AddDashboard(t.Context(), Dashboard{ID: fmt.Sprint("d", i), Name: "n"}, "usr_alice"))
		}
		got := 0
		for _, err := range parallel(10, func(i int) error { return s.Boards.BindSandbox(t.Context(), fmt.Sprint("d", i), "sb_new") }) {
			if err == nil {
				got++
			} else {
				wantKind(t, err, protocol.KindConflict)
			}
		}
		if got != 1 {
			t.Errorf("%d dashboards have the sandbox", got)
		}
	})
}

func TestMembers(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		members, err := s.Boards.Members(t.Context(), "dash_1")
		if err != nil || len(members) != 2 || members[1] != (Member{"usr_bob", "Bob", RoleEditor, "view control"}) {
			t.Errorf("%+v, %v", members, err)
		}
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_bob", "king", ""), protocol.KindInvalid)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_bob", RoleEditor, "fly"), protocol.KindInvalid)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_x", RoleEditor, ""), protocol.KindNotFound)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_9", "usr_bob", RoleEditor, ""), protocol.KindNotFound)
		must(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_bob", RoleViewer, ""))
		if _, m, err := s.Boards.DashboardFor(t.Context(), "usr_bob", "dash_1"); err != nil || m.Role != RoleViewer || m.Capabilities != "" {
			t.Errorf("%+v, %v", m, err)
		}
		// The last owner stays, unnarrowed.
		wantKind(t, s.Boards.RemoveMember(t.Context(), "dash_1", "usr_alice"), protocol.KindConflict)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_alice", RoleEditor, ""), protocol.KindConflict)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_alice", RoleOwner, "view"), protocol.KindConflict)
		must(t, s.Boards.RemoveMember(t.Context(), "dash_1", "usr_bob"))
		must(t, s.Boards.RemoveMember(t.Context(), "dash_1", "usr_bob"))
		_, _, err = s.Boards.DashboardFor(t.Context(), "usr_bob", "dash_1")
		wantKind(t, err, protocol.KindNotFound)
	})
}

// TestLastOwner has the two owners of a dashboard leave at the same time.
func TestLastOwner(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		for range 10 {
			for _, user := range []protocol.UserID{"usr_alice", "usr_bob"} {
				must(t, s.Boards.SetMember(t.Context(), "dash_1", user, RoleOwner, ""))
			}
			left := 0
			for _, err := range parallel(2, func(i int) error {
				return s.Boards.RemoveMember(t.Context(), "dash_1", []protocol.UserID{"usr_alice", "usr_bob"}[i])
			}) {
				if err == nil {
					left++
				} else {
					wantKind(t, err, protocol.KindConflict)
				}
			}
			if left != 1 {
				t.Fatalf("%d owners left", left)
			}
		}
	})
}

func TestItems(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		note, err := s.Contents.AddItem(t.Context(), Item{Dashboard: "dash_1", Kind: ItemNote, Body: []byte(`{"text":"é"}`), UpdatedBy: "usr_alice"})
		if err != nil || note.Version != 1 || !protocol.ValidID(note.ID) {
			t.Fatalf("%+v, %v", note, err)
		}
		for _, tt := range []struct {
			spoil func(*Item)
			kind  protocol.Kind
		}{
			{func(i *Item) { i.ID = note.ID }, protocol.KindConflict},
			{func(i *Item) { i.ID = "a b" }, protocol.KindInvalid},
			{func(i *Item) { i.Kind = "poem" }, protocol.KindInvalid},
			{func(i *Item) { i.Body = []byte(`{`) }, protocol.KindInvalid},
			{func(i *Item) { i.Body = nil }, protocol.KindInvalid},
			{func(i *Item) { i.Body = json.RawMessage(`"` + strings.Repeat("a", MaxItemBytes-1) + `"`) }, protocol.KindTooLarge},
			{func(i *Item) { i.Dashboard = "dash_9" }, protocol.KindNotFound},
			{func(i *Item) { i.UpdatedBy = "usr_x" }, protocol.KindConflict},
		} {
			item := Item{Dashboard: "dash_1", Kind: ItemTodo, Body: []byte(`{}`), UpdatedBy: "usr_alice"}
			tt.spoil(&item)
			_, err := s.Contents.AddItem(t.Context(), item)
			wantKind(t, err, tt.kind)
		}
		if got, err := s.Contents.Item(t.Context(), "dash_1", note.ID); err != nil || string(got.Body) != `{"text":"é"}` || !got.UpdatedAt.Equal(epoch) {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = s.Contents.Item(t.Context(), "dash_2", note.ID) // it isn't there
		wantKind(t, err, protocol.KindNotFound)

		// Of updates from one version, one counts.
		updated := 0
		for _, err := range parallel(10, func(i int) error {
			_, err := s.Contents.UpdateItem(t.Context(), Item{
				ID: note.ID, Dashboard: "dash_1", Body: fmt.Appendf(nil, `{"n":%d}`, i), UpdatedBy: "usr_bob",
			}, 1)
			return err
		}) {
			if err == nil {
				updated++
			} else {
				wantKind(t, err, protocol.KindConflict)
			}
		}
		if got, err := s.Contents.Item(t.Context(), "dash_1", note.ID); updated != 1 || err != nil || got.Version != 2 || got.UpdatedBy != "usr_bob" {
			t.Errorf("%d updates; %+v, %v", updated, got, err)
		}
		_, err = s.Contents.UpdateItem(t.Context(), Item{ID: note.ID, Dashboard: "dash_2", Body: []byte(`{}`), UpdatedBy: "usr_bob"}, 2)
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, s.Contents.RemoveItem(t.Context(), "dash_2", note.ID), protocol.KindNotFound)
		must(t, s.Contents.RemoveItem(t.Context(), "dash_1", note.ID))
		wantKind(t, s.Contents.RemoveItem(t.Context(), "dash_1", note.ID), protocol.KindNotFound)
	})
}

// TestItemsInOrder: items are listed as they were added, however ids fall and
// whatever was changed since.
func TestItemsInOrder(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		want := []string{"i5", "i1", "i4", "i2", "i3"}
		for _, id := range want {
			_, err := s.Contents.AddItem(t.Context(), Item{ID: id, Dashboard: "dash_1", Kind: ItemNote, Body: []byte(`1`), UpdatedBy: "usr_alice"})
			must(t, err)
		}
		c.Advance(time.Second)
		_, err := s.Contents.UpdateItem(t.Context(), Item{ID: "i1", Dashboard: "dash_1", Body: []byte(`2`), UpdatedBy: "usr_alice"}, 1)
		must(t, err)
		items, err := s.Contents.Items(t.Context(), "dash_1")
		must(t, err)
		var got []string
		for _, i := range items {
			got = append(got, i.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestItemsFull fills a dashboard to the brim, with several at a time.
func TestItemsFull(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must(t, s.db.Transact(t.Context(), func(tx db.Runner) error { // quicker than one by one
			for i := range MaxItems - 5 {
				if _, err := tx.Exec(t.Context(), `
					INSERT INTO items (id, dashboard_id, kind, body, version, updated_by, updated_at)
					VALUES (?, 'dash_1', 'note', ?, 1, 'usr_alice', 0)`, fmt.Sprint("i", i), []byte(`1`)); err != nil {
					return err
				}
			}
			return nil
		}))
		added := 0
		for _, err := range parallel(10, func(int) error {
			_, err := s.Contents.AddItem(t.Context(), Item{Dashboard: "dash_1", Kind: ItemNote, Body: []byte(`1`), UpdatedBy: "usr_alice"})
			return err
		}) {
			if err == nil {
				added++
			} else {
				wantKind(t, err, protocol.KindTooMany)
			}
		}
		if items, err := s.Contents.Items(t.Context(), "dash_1"); added != 5 || err != nil || len(items) != MaxItems {
			t.Errorf("%d were added; %d items, %v", added, len(items), err)
		}
	})
}

func TestUsage(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		for _, err := range parallel(20, func(int) error {
			return s.Usage.Add(t.Context(), []Usage{
				{"dash_1", "usr_bob", "2026-11-21", map[string]int64{UsageCommands: 1}},
				{"dash_1", "usr_alice", "2026-11-20", map[string]int64{UsageCommands: 2, UsageGrants: 1}},
				{"", "usr_alice", "2026-11-20", map[string]int64{UsageSignIns: 1}},
			})
		}) {
			must(t, err)
		}
		wantKind(t, s.Usage.Add(t.Context(), []Usage{{"", "usr_bob", "2026-11-20", map[string]int64{"jokes": 1}}}), protocol.KindInvalid)
		wantKind(t, s.Usage.Add(t.Context(), []Usage{{"", "usr_bob", "2026-11-20", map[string]int64{UsageGrants: -1}}}), protocol.KindInvalid)
		wantKind(t, s.Usage.Add(t.Context(), []Usage{{"", "usr_bob", "yesterday", map[string]int64{UsageGrants: 1}}}), protocol.KindInvalid)
		for _, tt := range []struct{ dashboard, from, to, want string }{
			{"dash_1", "2026-11-20", "2026-11-21", "[{dash_1 usr_alice 2026-11-20 map[commands:40 grants:20]} {dash_1 usr_bob 2026-11-21 map[commands:20]}]"},
			{"dash_1", "2026-11-21", "2026-11-30", "[{dash_1 usr_bob 2026-11-21 map[commands:20]}]"},
			{"", "2026-01-01", "2026-12-31", "[{ usr_alice 2026-11-20 map[sign_ins:20]}]"},
			{"dash_2", "2026-11-20", "2026-11-21", "[]"},
		} {
			got, err := s.Usage.In(t.Context(), tt.dashboard, tt.from, tt.to)
			if err != nil || fmt.Sprint(got) != tt.want {
				t.Errorf("%v, %v; want %s", got, err, tt.want)
			}
		}
		_, err := s.Usage.In(t.Context(), "dash_1", "2024-11-20", "2026-11-21")
		wantKind(t, err, protocol.KindInvalid)
		_, err = s.Usage.In(t.Context(), "dash_1", "2026-11-20", "")
		wantKind(t, err, protocol.KindInvalid)
	})
}
