package jarfile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/cookieform"
	"github.com/fairlead/fairlead/protocol/seal"
)

// The process that writes is this test, in one of these ways.
const (
	asServe = "serve" // as it should
	asStall = "stall" // it stops before the last step, having written much already
	asNoise = "noise" // it prints without end
)

func TestMain(m *testing.M) {
	switch os.Args[len(os.Args)-1] {
	case asServe:
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0) // at once: the race detector waits a second in os.Exit
	case asStall:
		stall()
	case asNoise:
		for {
			fmt.Print(strings.Repeat("x", 1<<10))
		}
	default:
		os.Exit(run(m))
	}
}

// program is this test where any user can run it.
var program string

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "jarfile")
	if err == nil {
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "program")
		err = errors.Join(os.Chmod(dir, 0o755), copyProgram(program))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func copyProgram(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// stalled is a file that says that stall has come that far.
const stalled = "stalled"

// stall replaces all cookies without the last step, with so little memory that most of
// it is in the file by then.
func stall() {
	db, err := open()
	if err == nil {
		_, err = db.Exec("PRAGMA cache_size = 2")
	}
	var tx *sql.Tx
	if err == nil {
		tx, err = db.Begin()
	}
	if err == nil {
		_, err = apply(context.Background(), tx, Change{Set: many("new")}, time.Now())
	}
	if err == nil {
		err = os.WriteFile(stalled, nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(1)
	}
	select {}
}

const user = 54321 // the profile's, where the test is root

// A profile is one with Chromium's database.
type profile struct {
	testing.TB
	dir    string
	writer Writer
}

// newProfile returns a profile whose database is made by some statements, beside what
// Chromium makes.
func newProfile(t testing.TB, more ...string) *profile {
	t.Helper()
	p := &profile{TB: t, dir: t.TempDir()}
	for dir := p.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		p.must(os.Chmod(dir, 0o755))
	}
	p.writer = Writer{Command: []string{program, asServe}, Patience: time.Minute} // which only a hang reaches
	p.dir = filepath.Join(p.dir, "profile")
	p.must(os.MkdirAll(filepath.Join(p.dir, folder), 0o700))
	for _, o := range cookieform.Objects() {
		if o.SQL != "" {
			p.do(o.SQL)
		}
	}
	p.do("INSERT INTO meta VALUES ('version', '24'), ('last_compatible_version', '24'), ('mmap_status', '-1')")
	p.do(more...)
	p.must(os.Chmod(p.path(), 0o600))
	p.give()
	return p
}

// give gives the profile to its user.
func (p *profile) give() {
	p.Helper()
	if os.Geteuid() == 0 {
		p.must(filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, user, user))
		}))
	}
}

func (p *profile) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *profile) path() string { return filepath.Join(p.dir, name) }

func (p *profile) do(statements ...string) {
	p.Helper()
	db, err := sql.Open("sqlite", p.path())
	p.must(err)
	defer db.Close()
	for _, s := range statements {
		_, err := db.Exec(s)
		p.must(err)
	}
}

func (p *profile) credential() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: user, Gid: user}
}

func (p *profile) write(c Change) (int, error) {
	p.Helper()
	return p.writer.Write(p.Context(), p.dir, p.credential(), c)
}

// has returns the values of all rows by what tells them apart.
func (p *profile) has() map[string]string {
	p.Helper()
	db, err := sql.Open("sqlite", p.path())
	p.must(err)
	defer db.Close()
	rows, err := db.Query("SELECT host_key, name, path, top_frame_site_key, source_port, encrypted_value FROM cookies")
	p.must(err)
	defer rows.Close()
	all, key := map[string]string{}, cookieform.NewKey(cookieform.KnownPassword, cookieform.LinuxRounds)
	for rows.Next() {
		var host, name, path, site, port string
		var value []byte
		p.must(rows.Scan(&host, &name, &path, &site, &port, &value))
		plain, ok := key.Open(cookieform.Written, host, value[min(len(value), cookieform.TagBytes):])
		if !ok {
			plain = "?"
		}
		all[strings.TrimSpace(strings.Join([]string{host, name, path, port, site}, " "))] = plain
	}
	p.must(rows.Err())
	return all
}

func (p *profile) want(when string, want map[string]string) {
	p.Helper()
	if got := p.has(); !maps.Equal(got, want) {
		p.Errorf("%s: %v, want %v", when, got, want)
	}
}

func cookie(host, name, value string) seal.Cookie {
	return seal.Cookie{
		HostKey: host, Name: name, Value: value, Path: "/", Expires: seal.ToMicros(time.Now().Add(time.Hour)), HasExpires: 1, Persistent: 1,
		Priority: 1, SameSite: -1, SourceScheme: 1, SourcePort: -1,
	}
}

// many returns as many cookies as Chromium keeps.
func many(value string) (all []seal.Cookie) {
	for i := range 3000 {
		all = append(all, cookie(fmt.Sprintf(".s%d.example.com", i%100), fmt.Sprint("c", i), value))
	}
	return all
}

// row inserts a cookie of Chromium's own.
func row(host, name, site string, port int) string {
	return fmt.Sprintf("INSERT INTO cookies VALUES (1, '%s', '%s', '%s', '', 'v10', '/', 99999999999999999, 0, 0, 1, 1, 1, 1, -1, 1, %d, 1, 1, 1)", host, site, name, port)
}

// TestChange: an older row goes whatever its port is, a partitioned one and those of
// others stay, and what can't stand there is only taken out.
func TestChange(t *testing.T) {
	p := newProfile(t, row("a.test", "n", "", 80), row("a.test", "n", "", 443), row("a.test", "n", "https://b.test", 80), row("a.test", "other", "", 80),
		row("a.test", "brief", "", 80), row(".co.uk", "n", "", 80), row("a.test", "lost", "", 80))
	before, err := os.Stat(p.path())
	p.must(err)
	brief, port := cookie("a.test", "brief", "1"), cookie("a.test", "n", "2")
	brief.HasExpires, brief.Expires, port.SourcePort = 0, 0, 8080
	written, err := p.write(Change{
		Set:    []seal.Cookie{cookie("a.test", "n", "1"), brief, port, cookie(".co.uk", "n", "1"), cookie(".b.test", "", "ü")},
		Remove: []seal.CookieID{{HostKey: "a.test", Name: "lost", Path: "/"}, {HostKey: "' OR 1=1 --", Name: "x", Path: "/"}},
	})
	if err != nil || written != 3 {
		t.Errorf("%d written, %v", written, err)
	}
	p.want("changed", map[string]string{"a.test n / 8080": "2", "a.test n / 80 https://b.test": "?", "a.test other / 80": "?", ".b.test  / -1": "ü"})
	after, err := os.Stat(p.path())
	p.must(err)
	b, a := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	if a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Ino != b.Ino {
		t.Errorf("the file was %+v, is %+v", b, a)
	}
}

// TestRefuses: whatever isn't a database as Chromium makes it stays as it is, and so
// does what a link leads to.
func TestRefuses(t *testing.T) {
	type twist func(p *profile)
	statements := func(s ...string) twist { return func(p *profile) { p.do(s...); p.give() } }
	swap := func(with func(path string) error) twist {
		return func(p *profile) {
			p.must(os.Rename(p.path(), p.path()+".old"))
			p.must(with(p.path()))
			p.give()
		}
	}
	for what, c := range map[string]struct {
		twist twist
		want  Reason
	}{
		"an older schema":     {statements("UPDATE meta SET value = '23' WHERE key = 'version'"), Schema},
		"a newer schema":      {statements("UPDATE meta SET value = '25' WHERE key = 'version'"), Schema},
		"no number":           {statements("UPDATE meta SET value = 'x' WHERE key = 'version'"), Schema},
		"no version":          {statements("DELETE FROM meta"), Schema},
		"another column":      {statements("ALTER TABLE cookies ADD COLUMN more TEXT"), Schema},
		"a column less":       {statements("DROP INDEX cookies_unique_index", "ALTER TABLE cookies DROP COLUMN source_type"), Schema},
		"no index":            {statements("DROP INDEX cookies_unique_index"), Schema},
		"no table":            {statements("DROP TABLE cookies"), Schema},
		"another table":       {statements("CREATE TABLE more (x)"), Schema},
		"a trigger":           {statements("CREATE TRIGGER t AFTER INSERT ON cookies BEGIN DELETE FROM cookies; END"), Schema},
		"a view":              {statements("CREATE VIEW v AS SELECT * FROM cookies"), Schema},
		"a view as a table":   {statements("ALTER TABLE cookies RENAME TO c", "CREATE VIEW cookies AS SELECT * FROM c"), Schema},
		"a virtual table":     {statements("DROP TABLE meta", "CREATE VIRTUAL TABLE meta USING fts5(key, value)"), Schema},
		"a write-ahead log":   {statements("PRAGMA journal_mode = WAL"), NotAs},
		"a log beside it":     {func(p *profile) { p.must(os.WriteFile(p.path()+"-wal", nil, 0o666)) }, NotAs},
		"a journal elsewhere": {func(p *profile) { p.must(os.Symlink("elsewhere", p.path()+"-journal")) }, NotAs},
		"garbage":             {swap(func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("cookies", 1000)), 0o600) }), Damaged},
		"nothing":             {swap(func(path string) error { return os.WriteFile(path, nil, 0o600) }), Damaged},
		"a cut":               {func(p *profile) { p.must(os.Truncate(p.path(), 9000)) }, Damaged},
		"holes": {func(p *profile) {
			f, err := os.OpenFile(p.path(), os.O_WRONLY, 0)
			p.must(err)
			_, err = f.WriteAt(make([]byte, 5000), 5000)
			p.must(errors.Join(err, f.Close()))
		}, Damaged},
		"a large one": {func(p *profile) { p.must(os.Truncate(p.path(), maxFile+1)) }, NotAs},
		"a link":      {swap(func(path string) error { return os.Symlink("Cookies.old", path) }), NotAs},
		"a pipe":      {swap(func(path string) error { return syscall.Mkfifo(path, 0o600) }), NotAs},
		"a folder":    {swap(func(path string) error { return os.Mkdir(path, 0o700) }), NotAs},
		"none":        {swap(func(path string) error { return nil }), NoFile},
		"a folder elsewhere": {func(p *profile) {
			p.must(os.Rename(filepath.Join(p.dir, folder), filepath.Join(p.dir, "Other")))
			p.must(os.Symlink("Other", filepath.Join(p.dir, folder)))
		}, NotAs},
		"no profile": {func(p *profile) { p.must(os.RemoveAll(filepath.Join(p.dir, folder))) }, NoFile},
	} {
		t.Run(what, func(t *testing.T) {
			p := newProfile(t, row("a.test", "n", "", 80))
			c.twist(p)
			before := p.tree()
			written, err := p.write(Change{Set: []seal.Cookie{cookie("a.test", "n", "secret")}})
			if written != 0 || !errors.Is(err, c.want) {
				t.Errorf("%d written, %v, want %v", written, err, c.want)
			}
			if after := p.tree(); !maps.Equal(before, after) {
				t.Errorf("was %v, is %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			}
		})
	}
}

// tree returns the profile's files with what they have.
func (p *profile) tree() map[string]string {
	p.Helper()
	all := map[string]string{}
	p.must(filepath.WalkDir(p.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		st, err := entry.Info()
		if err != nil {
			return err
		}
		text := []byte(fmt.Sprint(st.Size()))
		if st.Size() <= 1<<20 {
			text, err = os.ReadFile(path)
		}
		all[path] = string(text)
		return err
	}))
	return all
}

// TestLocked: a database that somebody uses isn't waited for long.
func TestLocked(t *testing.T) {
	p := newProfile(t)
	db, err := sql.Open("sqlite", p.path()+"?_txlock=exclusive")
	p.must(err)
	defer db.Close()
	tx, err := db.Begin()
	p.must(err)
	defer tx.Rollback()
	if _, err := p.write(Change{Set: []seal.Cookie{cookie("a.test", "n", "1")}}); !errors.Is(err, Locked) {
		t.Error(err)
	}
}

// TestRights: where the profile is another user's, nothing is written with ours.
func TestRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	p := newProfile(t)
	p.must(os.Chown(p.path(), 0, 0))
	p.must(os.Chmod(p.path(), 0o600))
	if _, err := p.write(Change{Set: []seal.Cookie{cookie("a.test", "n", "1")}}); err == nil {
		t.Error("it was written with root's rights")
	}
	p.want("another user's", map[string]string{})
}

// TestHelperMisbehaves: a process that can't be started, hangs or prints without end
// is an error of ours, soon.
func TestHelperMisbehaves(t *testing.T) {
	p := newProfile(t)
	for what, command := range map[string][]string{"noise": {program, asNoise}, "none": {filepath.Join(p.dir, "none")}, "not it": {"/bin/echo", `{"Why":"secret"}`}} {
		p.writer.Command = command
		if _, err := p.write(Change{Set: []seal.Cookie{cookie("a.test", "n", "1")}}); !errors.Is(err, Failed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.writer = Writer{Command: []string{"/bin/sleep", "1000"}, Patience: 50 * time.Millisecond}
	if _, err := p.write(Change{}); !errors.Is(err, Failed) {
		t.Errorf("a hang: %v", err)
	}
	for what, c := range map[string]Change{
		"cookies": {Set: make([]seal.Cookie, maxCookies+1)}, "ids": {Remove: make([]seal.CookieID, maxIDs+1)},
		"bytes": {Set: slices.Repeat([]seal.Cookie{cookie("a.test", "n", strings.Repeat("x", 4095))}, maxCookies)},
	} {
		if _, err := p.write(c); !errors.Is(err, TooMuch) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKill: a process that is killed when most of a change is in the file leaves the
// cookies that were there, and the next change is as any.
func TestKill(t *testing.T) {
	p := newProfile(t)
	if _, err := p.write(Change{Set: many("old")}); err != nil {
		t.Fatal(err)
	}
	old := p.has()
	before, err := os.ReadFile(p.path())
	p.must(err)
	serve := p.writer
	p.writer.Command = []string{program, asStall}
	ctx, kill := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := p.writer.Write(ctx, p.dir, p.credential(), Change{})
		done <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(filepath.Join(p.dir, stalled)); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("it never got so far")
			}
		}
	}
	kill()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	after, err := os.ReadFile(p.path())
	p.must(err)
	journal, err := os.Stat(p.path() + "-journal")
	if string(after) == string(before) || err != nil || journal.Size() == 0 {
		t.Fatalf("nothing was written yet: %v", err)
	}
	p.writer = serve
	if _, err := p.write(Change{Remove: []seal.CookieID{{HostKey: "none.test"}}}); err != nil {
		t.Error(err)
	}
	p.want("killed", old)
}

// BenchmarkWrite replaces as many cookies as Chromium keeps.
func BenchmarkWrite(b *testing.B) {
	p := newProfile(b)
	all := many(strings.Repeat("x", 64))
	for b.Loop() {
		if n, err := p.write(Change{Set: all}); err != nil || n != len(all) {
			b.Fatal(n, err)
		}
	}
}
