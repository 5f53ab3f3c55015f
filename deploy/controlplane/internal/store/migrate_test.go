package store

import (
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
	"github.com/fairlead/fairlead/protocol"
)

// firstData is what a database of schema 1 may hold.
const firstData = `
INSERT INTO users (id, name, token_hash) VALUES ('usr_alice', 'Alice', X'%x'), ('usr_bob', 'Bob', X'%x');
INSERT INTO sandboxes (id, device_key, enrolled_at) VALUES ('sb_1', 'thumb', 5), ('sb_2', NULL, NULL);
INSERT INTO dashboards (id, sandbox_id) VALUES ('dash_1', 'sb_1'), ('dash_2', 'sb_2');
INSERT INTO members (dashboard_id, user_id, role) VALUES
	('dash_1', 'usr_alice', 'owner'), ('dash_1', 'usr_bob', 'controller'), ('dash_2', 'usr_bob', 'viewer');
INSERT INTO sessions (id, dashboard_id, state) VALUES ('ses_1', 'dash_1', 'active'), ('ses_2', 'dash_2', 'pending');
INSERT INTO relays (id, credential_hash) VALUES ('rl_1', X'%x');
INSERT INTO grants (id, user_id, session_id, capabilities, issued_at, expires_at) VALUES ('gr_1', 'usr_bob', 'ses_1', 'view', 1, 2);
INSERT INTO commands (id, user_id, idempotency_key, request_hash, kind, session_id, envelope, issued_at, status, result, finished_at)
VALUES ('cmd_1', 'usr_alice', 'k', X'61', 'pty.create', 'ses_1',
	'{"type":"control.command","commandId":"cmd_1","issuedAt":1000,"ttlMs":30000,"target":{"sandboxId":"sb_1","sessionId":"ses_1"}}',
	1000, 'ok', '{"a":1}', 2000);
`

// TestFromFirstSchema: a database of the first release keeps all it held.
func TestFromFirstSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	old, err := sql.Open("sqlite", "file:"+path+"?_pragma=foreign_keys(1)")
	must(t, err)
	files, err := fs.Sub(migrations, "migrations/sqlite")
	must(t, err)
	p, err := goose.NewProvider(goose.DialectSQLite3, old, files)
	must(t, err)
	_, err = p.UpTo(t.Context(), 1)
	must(t, err)
	_, err = old.ExecContext(t.Context(), fmt.Sprintf(firstData, hashToken(aliceToken), hashToken(bobToken), hashToken(relayToken)))
	must(t, err)
	must(t, old.Close())

	for range 2 { // the second time nothing is to be done
		s := open(t, path, &clock{})
		if u, err := s.People.UserByToken(t.Context(), aliceToken); err != nil || u != (User{ID: "usr_alice", Name: "Alice"}) {
			t.Errorf("%+v, %v", u, err)
		}
		members, err := s.Boards.Members(t.Context(), "dash_1")
		want := []Member{{"usr_alice", "Alice", RoleOwner, ""}, {"usr_bob", "Bob", RoleEditor, "view control"}}
		if err != nil || !slices.Equal(members, want) {
			t.Errorf("%+v, %v", members, err)
		}
		if d, _, err := s.Boards.DashboardFor(t.Context(), "usr_bob", "dash_2"); err != nil || d != (Dashboard{ID: "dash_2", Name: "dash_2", Sandbox: "sb_2"}) {
			t.Errorf("%+v, %v", d, err)
		}
		cmd, err := s.Commands.AddCommand(t.Context(), command("k", "a"))
		if err != nil || cmd.Envelope.CommandID != "cmd_1" || string(cmd.Outcome.Result) != `{"a":1}` || cmd.FinishedAt.UnixMilli() != 2000 {
			t.Errorf("%+v, %v", cmd, err)
		}
		cb, err := s.Commands.CallbackFor(t.Context(), "cmd_1")
		if err != nil || cb.Sandbox != "sb_1" || cb.DeviceKey != "thumb" || cb.ExpiresAt.UnixMilli() != 31000 || cb.TokenHash != nil {
			t.Errorf("%+v, %v", cb, err)
		}
		if g, err := s.Grants.Grant(t.Context(), "gr_1"); err != nil || g.Dashboard != "dash_1" || g.Sandbox != "" {
			t.Errorf("%+v, %v", g, err)
		}
		if id, err := s.Fleet.RelayByCredential(t.Context(), relayToken); err != nil || id != "rl_1" {
			t.Errorf("%v, %v", id, err)
		}
		wantKind(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "other", nil, false, epoch), protocol.KindConflict)
	}
}

// TestItemsOfSecondSchema: items that were there are listed in the order of their
// last change, before new ones.
func TestItemsOfSecondSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	old, err := sql.Open("sqlite", "file:"+path+"?_pragma=foreign_keys(1)")
	must(t, err)
	files, err := fs.Sub(migrations, "migrations/sqlite")
	must(t, err)
	p, err := goose.NewProvider(goose.DialectSQLite3, old, files)
	must(t, err)
	_, err = p.UpTo(t.Context(), 2)
	must(t, err)
	_, err = old.ExecContext(t.Context(), `
		INSERT INTO users (id, name, email, created_at) VALUES ('usr_alice', 'Alice', '', 0);
		INSERT INTO dashboards (id, name, created_at) VALUES ('dash_1', 'One', 0), ('dash_2', 'Two', 0);
		INSERT INTO items (id, dashboard_id, kind, body, version, updated_by, updated_at) VALUES
			('i1', 'dash_1', 'note', X'31', 1, 'usr_alice', 20), ('i2', 'dash_1', 'note', X'31', 1, 'usr_alice', 10),
			('i3', 'dash_2', 'note', X'31', 1, 'usr_alice', 15), ('i5', 'dash_1', 'note', X'31', 1, 'usr_alice', 20);`)
	must(t, err)
	must(t, old.Close())

	s := open(t, path, &clock{})
	_, err = s.Contents.AddItem(t.Context(), Item{ID: "i0", Dashboard: "dash_1", Kind: ItemNote, Body: []byte(`1`), UpdatedBy: "usr_alice"})
	must(t, err)
	items, err := s.Contents.Items(t.Context(), "dash_1")
	must(t, err)
	var got []string
	for _, i := range items {
		got = append(got, i.ID)
	}
	if want := []string{"i2", "i1", "i5", "i0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// columns describes every table of a database: name, type, whether it may be
// NULL, its default.
func columns(t *testing.T, url string) map[string]string {
	t.Helper()
	query := `
		SELECT m.name, c.name, c.type, c."notnull", coalesce(c.dflt_value, '')
		FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`
	if strings.HasPrefix(url, "postgres") {
		query = `
			SELECT table_name, column_name, data_type, CASE is_nullable WHEN 'NO' THEN 1 ELSE 0 END, coalesce(column_default, '')
			FROM information_schema.columns WHERE table_schema = current_schema()`
	}
	all, err := db.Collect(t.Context(), open(t, url, &clock{}).db.Reads(), func(row db.Scanner) (c [2]string, err error) {
		var table, column, typ, def string
		var notNull int
		err = row.Scan(&table, &column, &typ, &notNull, &def)
		def, _, _ = strings.Cut(def, "::")
		return [2]string{table + "." + column, fmt.Sprint(types[strings.ToUpper(typ)], notNull, def)}, err
	}, query)
	must(t, err)
	described := make(map[string]string)
	for _, c := range all {
		if !strings.HasPrefix(c[0], "goose_") && !strings.HasPrefix(c[0], "sqlite_") {
			described[c[0]] = c[1]
		}
	}
	return described
}

var types = map[string]string{
	"TEXT": "text", "INTEGER": "number", "BIGINT": "number", "BLOB": "bytes", "BYTEA": "bytes",
}

// TestSameSchema: both sets of migrations end in the same tables.
func TestSameSchema(t *testing.T) {
	lite := columns(t, filepath.Join(t.TempDir(), "db"))
	post := columns(t, pgtest.New(t))
	if len(lite) < 50 {
		t.Errorf("only %d columns", len(lite))
	}
	names := slices.Sorted(maps.Keys(lite))
	if other := slices.Sorted(maps.Keys(post)); !slices.Equal(names, other) {
		t.Errorf("sqlite has\n%v,\npostgres\n%v", names, other)
	}
	for _, name := range names {
		if lite[name] != post[name] {
			t.Errorf("%s: sqlite %s, postgres %s", name, lite[name], post[name])
		}
	}
}
