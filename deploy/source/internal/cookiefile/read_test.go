package cookiefile

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol/seal"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A database is one that a browser has, as Chromium's of schema 24 is made.
type database struct {
	tb   testing.TB
	path string
	db   *sql.DB
}

func newDatabase(tb testing.TB, schema int) *database {
	tb.Helper()
	d := &database{tb: tb, path: filepath.Join(tb.TempDir(), "Cookies")}
	db, err := sql.Open("sqlite", d.path)
	must(tb, err)
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { _ = db.Close() })
	d.db = db
	d.do("CREATE TABLE meta(key LONGVARCHAR NOT NULL UNIQUE PRIMARY KEY, value LONGVARCHAR)")
	d.do("INSERT INTO meta VALUES ('version', ?)", fmt.Sprint(schema))
	d.do(`CREATE TABLE cookies(creation_utc INTEGER NOT NULL, host_key TEXT NOT NULL, top_frame_site_key TEXT NOT NULL, name TEXT NOT NULL,
		value TEXT NOT NULL, encrypted_value BLOB NOT NULL, path TEXT NOT NULL, expires_utc INTEGER NOT NULL, is_secure INTEGER NOT NULL,
		is_httponly INTEGER NOT NULL, last_access_utc INTEGER NOT NULL, has_expires INTEGER NOT NULL, is_persistent INTEGER NOT NULL,
		priority INTEGER NOT NULL, samesite INTEGER NOT NULL, source_scheme INTEGER NOT NULL, source_port INTEGER NOT NULL,
		last_update_utc INTEGER NOT NULL, source_type INTEGER NOT NULL, has_cross_site_ancestor INTEGER NOT NULL)`)
	return d
}

func (d *database) do(text string, args ...any) {
	d.tb.Helper()
	if _, err := d.db.Exec(text, args...); err != nil {
		d.tb.Fatal(err)
	}
}

// put adds a cookie that ends in an hour.
func (d *database) put(host, name, clear string, sealed []byte) {
	d.tb.Helper()
	d.row(host, "", name, clear, sealed, time.Now().Add(time.Hour))
}

func (d *database) row(host, site, name, clear string, sealed []byte, ends time.Time) {
	d.tb.Helper()
	d.do("INSERT INTO cookies VALUES (1, ?, ?, ?, ?, ?, '/', ?, 1, 1, 7, 1, 1, 2, -1, 2, 443, 1, 0, 0)", host, site, name, clear, append([]byte{}, sealed...), int64(seal.ToMicros(ends)))
}

// encrypted is a value as Chromium encrypts it.
func encrypted(tag string, p Platform, password, host, value string, schema int) []byte {
	return append([]byte(tag), p.keys(password)[0].Seal(schema, host, value)...)
}

// A ring is a keyring that counts how often it was asked.
type ring struct {
	password string
	err      error
	asked    int
}

func (r *ring) Password(context.Context) (string, error) {
	r.asked++
	return r.password, r.err
}

func everything(tb testing.TB) *seal.Policy {
	tb.Helper()
	p, err := seal.NewPolicy(false, nil)
	must(tb, err)
	return p
}

func (d *database) read(k Keyring, p Platform) (Set, error) {
	d.tb.Helper()
	scratch := d.tb.TempDir()
	set, err := Read(d.tb.Context(), Options{Path: d.path, Scratch: scratch, Platform: p, Keyring: k, Policy: everything(d.tb), Now: time.Now()})
	left, globErr := filepath.Glob(filepath.Join(scratch, "*"))
	if globErr != nil || len(left) != 0 {
		d.tb.Errorf("left in the scratch folder: %v", left)
	}
	return set, err
}

func values(set Set) map[string]string {
	all := map[string]string{}
	for _, c := range set.Cookies {
		all[c.HostKey+" "+c.Name] = c.Value
	}
	return all
}

// TestValues: each way in which values are kept, of files with the host's hash and
// without.
func TestValues(t *testing.T) {
	for _, schema := range []int{23, 24} {
		d := newDatabase(t, schema)
		d.put("clear.test", "n", "as it is", nil)
		d.put("empty.test", "n", "", nil)
		d.put("ten.test", "n", "", encrypted("v10", Linux, "peanuts", "ten.test", "known", schema))
		d.put(".eleven.test", "n", "", encrypted("v11", Linux, "the ring's", ".eleven.test", "zürich", schema))
		d.put("none.test", "n", "", encrypted("v11", Linux, "", "none.test", "by no password", schema))
		want := map[string]string{"clear.test n": "as it is", "empty.test n": "", "ten.test n": "known", ".eleven.test n": "zürich", "none.test n": "by no password"}
		keys := &ring{password: "the ring's"}
		set, err := d.read(keys, Linux)
		must(t, err)
		if !maps.Equal(values(set), want) || !set.Whole() || set.Schema != schema || keys.asked != 1 {
			t.Errorf("schema %d: %v, unreadable %v, asked %d times", schema, values(set), set.Unreadable, keys.asked)
		}
		if c := set.Cookies[0]; c.Secure != 1 || c.HTTPOnly != 1 || c.Priority != 2 || c.SameSite != -1 || c.SourceScheme != 2 || c.SourcePort != 443 || c.Path != "/" || c.HasExpires != 1 {
			t.Errorf("%+v", c)
		}
	}
	d := newDatabase(t, 24)
	d.put("mac.test", "n", "", encrypted("v10", Darwin, "keychain's", "mac.test", "v", 24))
	if set, err := d.read(&ring{password: "keychain's"}, Darwin); err != nil || values(set)["mac.test n"] != "v" {
		t.Errorf("%v, %v: %v", values(set), set.Unreadable, err)
	}
}

// TestUnreadable: one that can't be read is counted with its reason, keeps no other
// back, and the set isn't whole. No reason has a value.
func TestUnreadable(t *testing.T) {
	d := newDatabase(t, 24)
	good := encrypted("v10", Linux, "peanuts", "good.test", "secret", 24)
	d.put("good.test", "n", "", good)
	d.put("moved.test", "n", "", good) // another host's hash
	d.put("key.test", "n", "", encrypted("v10", Linux, "another", "key.test", "secret", 24))
	d.put("portal.test", "n", "", []byte("v12abcdefghijklmnop"))
	d.put("odd.test", "n", "", good[:len(good)-1])
	d.put("tag.test", "n", "", []byte("x"))
	d.put("bytes.test", "n", "", encrypted("v10", Linux, "peanuts", "bytes.test", "secret\xff", 24))
	d.put("host\xff.test", "n", "secret", nil)
	d.put("long.test", "n", "", make([]byte, maxValue+1))
	d.put("ring.test", "n", "", encrypted("v11", Linux, "locked", "ring.test", "secret", 24))
	set, err := d.read(&ring{err: errors.New("it stays locked")}, Linux)
	must(t, err)
	total := 0
	for why, n := range set.Unreadable {
		total += n
		if strings.Contains(why, "secret") {
			t.Error(why)
		}
	}
	if !maps.Equal(values(set), map[string]string{"good.test n": "secret"}) || total != 9 || set.Whole() {
		t.Errorf("%v, unreadable %v", values(set), set.Unreadable)
	}
	if n := set.Unreadable[errKey.Error()]; n != 3 {
		t.Errorf("%d with another key", n)
	}
}

// TestLeftOut: partitioned and expired cookies, and those of hosts that don't pass,
// for which no keyring is asked.
func TestLeftOut(t *testing.T) {
	d := newDatabase(t, 24)
	d.row("a.test", "https://b.test", "partitioned", "v", nil, time.Now().Add(time.Hour))
	d.row("a.test", "", "expired", "v", nil, time.Now().Add(-time.Hour))
	d.put("dropped.test", "n", "", encrypted("v11", Linux, "x", "dropped.test", "v", 24))
	policy, err := seal.NewPolicy(false, []string{"dropped.test"})
	must(t, err)
	keys := &ring{}
	set, err := Read(t.Context(), Options{Path: d.path, Scratch: t.TempDir(), Platform: Linux, Keyring: keys, Policy: policy, Now: time.Now()})
	must(t, err)
	if len(set.Cookies) != 0 || set.Partitioned != 1 || set.Expired != 1 || set.Dropped["dropped.test"] != 1 || keys.asked != 0 || !set.Whole() {
		t.Errorf("%+v, asked %d times", set, keys.asked)
	}
}

// TestNotAFile: what isn't a cookie file is said to be none; nothing comes of it.
func TestNotAFile(t *testing.T) {
	whole := newDatabase(t, 24)
	for i := range 300 {
		whole.put("a.test", fmt.Sprint("n", i), strings.Repeat("v", 100), nil)
	}
	must(t, whole.db.Close())
	data, err := os.ReadFile(whole.path)
	must(t, err)
	refused := func(what string, data []byte) {
		t.Helper()
		d := &database{tb: t, path: filepath.Join(t.TempDir(), "Cookies")}
		must(t, os.WriteFile(d.path, data, 0o600))
		if set, err := d.read(nil, Linux); err == nil || len(set.Cookies) != 0 {
			t.Errorf("%s: %d cookies, %v", what, len(set.Cookies), err)
		}
	}
	refused("empty", nil)
	refused("no database", bytes.Repeat([]byte("cookies"), 1000))
	for cut := 1; cut < len(data); cut += len(data)/40 + 1 {
		refused(fmt.Sprint("cut at ", cut), data[:cut])
	}
	for _, schema := range []int{17, 25} {
		d := newDatabase(t, schema)
		if _, err := d.read(nil, Linux); !errors.Is(err, ErrSchema) {
			t.Errorf("schema %d: %v", schema, err)
		}
	}
	d := newDatabase(t, 24)
	d.do("ALTER TABLE cookies DROP COLUMN source_port")
	if _, err := d.read(nil, Linux); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "source_port") {
		t.Error(err)
	}
	d = newDatabase(t, 24)
	d.put("a.test", "n", "v", nil)
	d.do("UPDATE cookies SET is_secure = 'yes'")
	if _, err := d.read(nil, Linux); err == nil {
		t.Error("text is a number")
	}
	gone := &database{tb: t, path: filepath.Join(t.TempDir(), "Cookies")}
	if _, err := gone.read(nil, Linux); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	must(t, os.Mkdir(gone.path, 0o700))
	if _, err := gone.read(nil, Linux); err == nil {
		t.Error("a folder is a file")
	}
}

// TestWhileWritten: a writer changes all rows at once, again and again, more than its
// cache holds, so that half of it is in the file before it is committed. What is read
// is of one moment.
func TestWhileWritten(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			d := newDatabase(t, 24)
			d.do("PRAGMA journal_mode = " + mode)
			d.do("PRAGMA cache_size = 5")
			d.do("PRAGMA synchronous = off")
			for i := range 200 {
				d.put("a.test", fmt.Sprint("n", i), "0", nil)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				for n := 1; ctx.Err() == nil; n++ {
					tx, err := d.db.Begin()
					if err == nil {
						_, err = tx.Exec("UPDATE cookies SET value = ?", strings.Repeat("x", n%500)+fmt.Sprint(n))
						err = errors.Join(err, tx.Commit())
					}
					if err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}()
			good, busy := 0, 0
			for deadline := time.Now().Add(2 * time.Second); good < 200 && time.Now().Before(deadline); {
				set, err := Read(t.Context(), Options{Path: d.path, Scratch: t.TempDir(), Platform: Linux, Policy: everything(t), Now: time.Now()})
				if errors.Is(err, ErrBusy) {
					if busy++; busy == 3 { // it never rests: let it
						cancel()
					}
					continue
				}
				must(t, err)
				good++
				all := slices.Collect(maps.Values(values(set)))
				if len(slices.Compact(slices.Sorted(slices.Values(all)))) != 1 || len(all) != 200 {
					t.Fatalf("%d rows of different moments", len(all))
				}
			}
			cancel()
			must(t, <-ended)
			if good == 0 {
				t.Error("it was never read")
			}
		})
	}
}

// TestHotJournal: what a browser that was killed had half written isn't there.
func TestHotJournal(t *testing.T) {
	d := newDatabase(t, 24)
	d.do("PRAGMA cache_size = 2")
	for i := range 500 {
		d.put("a.test", fmt.Sprint("n", i), strings.Repeat("a", 100), nil)
	}
	tx, err := d.db.Begin()
	must(t, err)
	_, err = tx.Exec("UPDATE cookies SET value = ?", strings.Repeat("b", 100))
	must(t, err)
	if _, err := os.Stat(d.path + "-journal"); err != nil {
		t.Fatal("there is no journal to speak of")
	}
	set, err := d.read(nil, Linux)
	must(t, err)
	for _, c := range set.Cookies {
		if c.Value[0] != 'a' {
			t.Fatal("what isn't committed was read")
		}
	}
	if len(set.Cookies) != 500 {
		t.Errorf("%d cookies", len(set.Cookies))
	}
	must(t, tx.Rollback())
}

// FuzzValue: whatever a file has, a value is an error or a text, never a panic.
func FuzzValue(f *testing.F) {
	f.Add("a.test", encrypted("v10", Linux, "peanuts", "a.test", "v", 24), 24)
	f.Add("a.test", []byte("v11"), 18)
	f.Fuzz(func(t *testing.T, host string, sealed []byte, schema int) {
		d := decrypter{platform: Linux, keyring: &ring{password: "p"}, schema: schema}
		_, _ = d.value(t.Context(), host, sealed)
	})
}
