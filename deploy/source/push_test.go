package source

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/cookieform"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A cookieFile is a browser's database with one cookie at most.
type cookieFile struct {
	t       *testing.T
	db      *sql.DB
	path    string
	expires seal.Micros
}

func newCookieFile(t *testing.T) *cookieFile {
	t.Helper()
	f := &cookieFile{t: t, path: filepath.Join(t.TempDir(), "Cookies"), expires: seal.ToMicros(time.Now().Add(time.Hour))}
	var err error
	f.db, err = sql.Open("sqlite", f.path)
	must(t, err)
	t.Cleanup(func() { f.db.Close() })
	for _, o := range cookieform.Objects() {
		if o.SQL != "" {
			f.exec(o.SQL)
		}
	}
	f.exec("INSERT INTO meta (key, value) VALUES ('version', ?)", cookieform.Written)
	return f
}

func (f *cookieFile) exec(query string, args ...any) {
	f.t.Helper()
	_, err := f.db.Exec(query, args...)
	must(f.t, err)
}

// set has the file hold a cookie of that value alone; "": none.
func (f *cookieFile) set(value string) {
	f.t.Helper()
	f.exec("DELETE FROM cookies")
	if value == "" {
		return
	}
	key := cookieform.NewKey(cookieform.KnownPassword, cookieform.LinuxRounds)
	sealed := append([]byte(cookieform.KnownTag), key.Seal(cookieform.Written, "bank.test", value)...)
	f.exec(`INSERT INTO cookies VALUES (1, 'bank.test', '', 'id', '', ?, '/', ?, 1, 1, 1, 1, 1, 1, 0, 2, 443, 1, 0, 1)`,
		sealed, int64(f.expires))
}

// TestLostAnswer: who doesn't know what the sandbox has sends again, even what was
// sent before, and even nothing: what isn't there any more has to leave the sandbox.
func TestLostAnswer(t *testing.T) {
	w, f := newWorld(t), newCookieFile(t)
	w.wants(0, "", "login", w.url)
	w.wants(0, "", "pair", "--site", "bank.test", "--cookie-file", f.path)
	dir, err := config.Open(w.folder)
	must(t, err)
	watching := &pusher{run: &run{env: &program.Env{Stdout: t.Output()}, dir: dir}, whose: whose{file: f.path}}
	push := func(value string, silent bool) {
		t.Helper()
		f.set(value)
		w.mu.Lock()
		w.silent = silent
		w.mu.Unlock()
		if err := watching.push(t.Context()); (err != nil) != silent {
			t.Fatal(err)
		}
	}
	posted := func(want ...string) {
		t.Helper()
		var got []string
		w.mu.Lock()
		for _, e := range w.posted {
			value := ""
			if len(e.Cookies) > 0 {
				value = e.Cookies[0].Value
			}
			got = append(got, value)
		}
		w.mu.Unlock()
		if len(got) != len(want) {
			t.Fatalf("posted %q, want %q", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("posted %q, want %q", got, want)
			}
		}
	}
	push("", false)
	posted()         // there never was anything
	push("a", true)  // the first one
	push("", false)  // signed out meanwhile
	posted("a", "")  //
	push("a", false) //
	push("a", false) // it is there
	posted("a", "", "a")
	push("b", true)
	push("a", false)
	posted("a", "", "a", "b", "a")
	w.silent = true
	w.wants(1, "", "push", "--cookie-file", f.path) // by another run of the program
	push("", false)
	posted("a", "", "a", "b", "a", "a", "")
}
