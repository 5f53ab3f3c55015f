// Package pgtest runs a real Postgres for tests: one server for each test binary,
// in a directory of its own and reachable by a socket there, and one schema of
// its database for each test.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

var shared struct {
	mu sync.Mutex
	// Guarded by mu.
	server  *server
	err     error // why there is none
	schemas int
}

// A Main is a test binary's *testing.M that ends the server after the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main{M: m}) }
type Main struct {
	M interface{ Run() int }
}

// Run runs the tests and then ends the server, if any of them started it.
func (m Main) Run() int {
	code := m.M.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.stop()
		shared.server = nil
	}
	return code
}

// New returns the URL of an empty schema, which holds a password. Where no
// Postgres is installed the test is skipped, but fails with CI=true.
func New(t testing.TB) string {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start(context.WithoutCancel(t.Context()), bin)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.schemas++
	schema := fmt.Sprintf("test%d", shared.schemas)
	if err := shared.server.createSchema(t.Context(), schema); err != nil {
		t.Fatalf("schema %s: %v", schema, err)
	}
	return shared.server.url(schema)
}

// createSchema makes a schema: a database of its own would take longer than
// most tests.
func (s *server) createSchema(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.url("public"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `CREATE SCHEMA `+pgx.Identifier{name}.Sanitize())
	return err
}

// url returns the URL of the database, with its tables in a schema.
func (s *server) url(schema string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password), Path: "/postgres",
		RawQuery: url.Values{"host": {s.dir}, "search_path": {schema}}.Encode(),
	}
	return u.String()
}
