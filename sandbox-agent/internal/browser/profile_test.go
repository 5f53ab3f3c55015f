package browser

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/storage"

	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jarfile"
)

// writeCookies has this test be the process that writes a profile.
const writeCookies = "write-cookies"

func runWriter() {
	if err := jarfile.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(1)
	}
	syscall.Exit(0) // at once: the race detector waits a second in os.Exit
}

// profileWorld is a cookieWorld whose profiles are written.
func profileWorld(t *testing.T) (w *world, k *keeping, sent func() []string) {
	t.Helper()
	w, k, sent = cookieWorld(t)
	program := filepath.Join(w.dir, "program")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		t.Fatal(err)
	}
	w.opts.Files = jarfile.Writer{Command: []string{program, writeCookies}, Patience: patience} // which only a hang reaches
	return w, k, sent
}

func (w *world) halt(t *testing.T) {
	t.Helper()
	if err := w.Stop(t.Context(), session); err != nil {
		t.Fatal(err)
	}
}

// startBare starts the session's Chromium with what its profile has, and nothing that
// is kept.
func (w *world) startBare(t *testing.T, k *keeping) {
	t.Helper()
	k.mu.Lock()
	all := k.cookies
	k.cookies = nil
	k.mu.Unlock()
	w.Browser.mu.Lock()
	delete(w.pending, session)
	w.Browser.mu.Unlock()
	w.text(t, "browser_start")
	k.mu.Lock()
	k.cookies = all
	k.mu.Unlock()
}

// jarOf returns what the session's Chromium has.
func (w *world) jarOf(t *testing.T) []*network.Cookie {
	t.Helper()
	var has storage.GetCookiesResult
	if err := w.chromium().Call(t.Context(), storage.GetCookies.Method, storage.GetCookiesParams{}, &has); err != nil {
		t.Fatal(err)
	}
	return has.Cookies
}

// file is the database of the session's Chromium.
func (w *world) file() string { return filepath.Join(w.profile(session), "Default", "Cookies") }

// counting counts what a Chromium is told to set.
type counting struct {
	jar.Chromium
	set int
}

func (c *counting) Call(ctx context.Context, method string, params, result any) error {
	if p, ok := params.(storage.SetCookiesParams); ok {
		c.set += len(p.Cookies)
	}
	return c.Chromium.Call(ctx, method, params, result)
}

// kinds is each kind of cookie that a database can hold.
func kinds() (all []seal.Cookie) {
	for n := range 48 {
		c := cookie("a.example", fmt.Sprint("kind", n), "ü\"x")
		c.SameSite, c.Priority, c.HTTPOnly = int64(n%4)-1, int64(n%3), int64(n/4%2)
		c.Secure, c.SourceScheme, c.SourcePort = 1, int64(n/3%3), []int64{-1, 80, 443, 65535, 0}[n%5]
		if c.SameSite != 0 && n/8%2 == 1 {
			c.Secure = 0
		}
		if n/16%2 == 1 {
			c.HostKey = ".a.example"
		}
		all = append(all, c)
	}
	host, secure, http := cookie("b.example", "__Host-a", "1"), cookie(".b.example", "__Secure-a", "1"), cookie("b.example", "__Http-a", "1")
	host.Secure, host.SourceScheme, host.SourcePort = 1, 2, 8443
	secure.Secure, secure.SourceScheme = 1, 2
	http.Secure, http.HTTPOnly, http.SourceScheme = 1, 1, 2
	long, beyond, deep, empty := cookie("b.example", "long", "1"), cookie("b.example", "beyond", "1"), cookie("b.example", "deep", "1"), cookie("b.example", "empty", "")
	long.Expires, beyond.Expires = seal.ToMicros(time.Now().Add(399*24*time.Hour)), seal.ToMicros(time.Now().Add(500*24*time.Hour))
	deep.Path = "/deep/er"
	big := cookie("b.example", "big", strings.Repeat("x", 4093))
	return append(all, host, secure, http, long, beyond, deep, empty, big, cookie("c.example", "", "alone"), cookie("[::1]", "six", "6"),
		cookie("127.0.0.1", "four", "4"), cookie("localhost", "one", "1"))
}

// TestProfileKinds: what was written into the file of a Chromium that has stopped is
// there at its next start as it was pushed, without being given; there is nothing left
// to give but what a file can't hold.
func TestProfileKinds(t *testing.T) {
	w, k, _ := profileWorld(t)
	w.text(t, "browser_start")
	w.halt(t)
	before, err := os.Stat(w.file())
	if err != nil {
		t.Fatal(err)
	}
	all := kinds()
	for _, c := range all {
		if err := c.Check(time.Now()); err != nil {
			t.Errorf("%+v: %v", c.ID(), err)
		}
	}
	brief, shared := cookie("a.example", "brief", "1"), cookie(".co.uk", "suffix", "1")
	brief.HasExpires, brief.Expires = 0, 0
	if refused := k.push(t, w.Browser, append(slices.Clone(all), brief, shared)...); !maps.Equal(refused, map[int]string{len(all) + 1: jarfile.SharedDomain}) {
		t.Errorf("refused %v", refused)
	}
	k.drop(t, w.Browser, shared.ID())
	after, err := os.Stat(w.file())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := after.Sys().(*syscall.Stat_t), before.Sys().(*syscall.Stat_t); a.Mode != b.Mode || a.Uid != b.Uid || a.Ino != b.Ino {
		t.Errorf("the file was %+v, is %+v", b, a)
	}
	w.startBare(t, k)
	has := w.jarOf(t)
	if len(has) != len(all) {
		t.Errorf("%d cookies, want %d", len(has), len(all))
	}
	var ids []seal.CookieID
	for _, c := range all {
		ids = append(ids, c.ID())
		if i := slices.IndexFunc(has, func(got *network.Cookie) bool { return jar.Same(c, got) }); i < 0 {
			t.Errorf("%+v isn't there", c)
		} else if got, p := has[i], jar.Param(c); got.Priority != p.Priority || got.SourceScheme != p.SourceScheme || got.SourcePort != p.SourcePort ||
			c.Name != "beyond" && math.Abs(got.Expires-float64(p.Expires)) > 1 {
			t.Errorf("%+v is %+v", c, got)
		}
	}
	gives := &counting{Chromium: w.chromium()}
	if _, err := jar.Give(t.Context(), gives, all, jar.Pending(nil).And(ids)); err != nil || gives.set != 0 {
		t.Errorf("%d are to be set, %v", gives.set, err)
	}
	w.halt(t)
	w.text(t, "browser_start")
	if has := w.jarOf(t); len(has) != len(all)+1 || !slices.ContainsFunc(has, func(got *network.Cookie) bool { return jar.Same(brief, got) }) {
		t.Errorf("%d cookies with what a file can't hold, want %d", len(has), len(all)+1)
	}
}

// TestProfileReplaces: a newer cookie is in the place of an older one, from whatever
// port that was; what was taken away is gone; Chromium's own stay, partitioned ones too.
func TestProfileReplaces(t *testing.T) {
	w, k, _ := profileWorld(t)
	w.text(t, "browser_start")
	old := cookie("a.example", "n", "old")
	old.Secure, old.SourceScheme, old.SourcePort = 1, 2, 443
	lost, own := cookie("a.example", "lost", "1"), cookie("a.example", "own", "1")
	parted := jar.Param(old)
	parted.PartitionKey = &network.CookiePartitionKey{TopLevelSite: "https://b.example"}
	set := storage.SetCookiesParams{Cookies: []*network.CookieParam{jar.Param(old), jar.Param(lost), jar.Param(own), parted}}
	if err := w.chromium().Call(t.Context(), storage.SetCookies.Method, set, nil); err != nil {
		t.Fatal(err)
	}
	w.halt(t)
	fresh := cookie("a.example", "n", "new")
	fresh.SourcePort = 8080
	k.push(t, w.Browser, fresh)
	k.drop(t, w.Browser, lost.ID())
	w.startBare(t, k)
	var got []string
	for _, c := range w.jarOf(t) {
		got = append(got, fmt.Sprint(c.Name, "=", c.Value, " ", c.SourcePort, " ", c.PartitionKey != nil))
	}
	slices.Sort(got)
	if want := []string{"n=new 8080 false", "n=old 443 true", "own=1 -1 false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProfileHostile: whatever a Chromium has left in place of its file, cookies that
// were pushed meanwhile are set at the next start, and nothing is done to what is there.
func TestProfileHostile(t *testing.T) {
	w, k, _ := profileWorld(t)
	w.text(t, "browser_start")
	do := func(statement string) func() error {
		return func() error {
			db, err := sql.Open("sqlite", w.file())
			if err != nil {
				return err
			}
			defer db.Close()
			_, err = db.Exec(statement)
			return err
		}
	}
	elsewhere := filepath.Join(w.dir, "elsewhere")
	for i, c := range []struct {
		what  string
		twist func() error
	}{
		{"a trigger", do("CREATE TRIGGER t AFTER INSERT ON cookies BEGIN DELETE FROM cookies; END")},
		{"another schema", do("UPDATE meta SET value = '25' WHERE key = 'version'")},
		{"a link", func() error {
			return errors.Join(os.WriteFile(elsewhere, []byte("not a database"), 0o666), os.Remove(w.file()), os.Symlink(elsewhere, w.file()))
		}},
		{"garbage", func() error {
			return errors.Join(os.Remove(w.file()), os.WriteFile(w.file(), []byte(strings.Repeat("cookies", 1000)), 0o666))
		}},
		{"a folder", func() error { return errors.Join(os.RemoveAll(w.file()), os.Mkdir(w.file(), 0o777)) }},
	} {
		w.halt(t)
		if err := c.twist(); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		before, _ := os.ReadFile(w.file()) // it may be none
		value := fmt.Sprint("value", i)
		k.push(t, w.Browser, cookie("a.example", "n", value))
		if after, _ := os.ReadFile(w.file()); string(after) != string(before) {
			t.Errorf("%s: it was changed", c.what)
		}
		w.text(t, "browser_start")
		if has := w.jarOf(t); !slices.ContainsFunc(has, func(got *network.Cookie) bool { return got.Value == value }) {
			t.Errorf("%s: the cookie isn't there", c.what)
		}
	}
}

// TestProfileWaits: a start waits until a profile is written, a write until a Chromium
// has started, and the session's end for both.
func TestProfileWaits(t *testing.T) {
	w, k, _ := profileWorld(t)
	w.text(t, "browser_start")
	w.halt(t)
	gate := filepath.Join(w.profile(session), "gate")
	if err := syscall.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(gate, 0o666); err != nil { // regardless of the umask
		t.Fatal(err)
	}
	files := w.opts.Files
	w.opts.Files.Command = []string{"/bin/cat", "gate"} // it goes on when somebody opens that
	state := func() (busy, starts bool) {
		w.Browser.mu.Lock()
		defer w.Browser.mu.Unlock()
		s := w.seats[session]
		return s.busy != nil, s.busy != nil && s.busy.starts
	}
	pushed, started := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(pushed)
		k.push(t, w.Browser, cookie("a.example", "n", "1"))
	}()
	eventually(t, "writing", func() bool { busy, _ := state(); return busy })
	go func() {
		_, err := w.call("browser_start")
		started <- err
	}()
	var cat *os.File
	eventually(t, "read", func() bool { // cat has opened it
		var err error
		cat, err = os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	if _, starts := state(); starts || len(started) > 0 {
		t.Error("it starts while its profile is written")
	}
	cat.Close()
	<-pushed
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	w.opts.Files = files
	if has := w.jarOf(t); len(has) != 1 { // what wrote nothing is made good at the start
		t.Errorf("%v", has)
	}
	w.halt(t)
	go func() {
		_, err := w.call("browser_start")
		started <- err
	}()
	eventually(t, "starting", func() bool { _, starts := state(); return starts })
	k.push(t, w.Browser, cookie("a.example", "n", "2"))
	if c := w.chromium(); c == nil {
		t.Error("it was written while Chromium started")
	} else if err := <-started; err != nil {
		t.Error(err)
	} else if has := w.jarOf(t); len(has) != 1 || has[0].Value != "2" {
		t.Errorf("%+v", has)
	}
}

// TestProfileKilled: a Chromium that finds what a killed writer has left, half of it
// in the file, has its old cookies, and gets what was to be written.
func TestProfileKilled(t *testing.T) {
	w, k, _ := profileWorld(t)
	w.text(t, "browser_start")
	w.halt(t)
	k.push(t, w.Browser, cookie("a.example", "n", "old"))
	db, err := sql.Open("sqlite", w.file()+"?_pragma=cache_size(2)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
		INSERT INTO cookies SELECT creation_utc, host_key, '', 'half' || i, 'new', x'', path, expires_utc, 0, 0, 1, 1, 1, 1, -1, 1, -1, 1, 3, 1 FROM cookies, n`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("DELETE FROM cookies WHERE name = 'n'"); err != nil {
		t.Fatal(err)
	}
	left := map[string][]byte{}
	for _, suffix := range []string{"", "-journal"} {
		if left[suffix], err = os.ReadFile(w.file() + suffix); err != nil || len(left[suffix]) == 0 {
			t.Fatal(len(left[suffix]), err)
		}
	}
	if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
		t.Fatal(err)
	}
	w.Browser.mu.Lock()
	user := *w.seats[session].account
	w.Browser.mu.Unlock()
	for suffix, text := range left {
		if err := errors.Join(os.WriteFile(w.file()+suffix, text, 0o600), user.own(w.file()+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(string(left[""]), "half1") {
		t.Fatal("nothing of it is in the file")
	}
	w.startBare(t, k)
	if has := w.jarOf(t); len(has) != 1 || has[0].Value != "old" {
		t.Errorf("%d cookies", len(has))
	}
	w.halt(t)
	fails := w.opts.Files
	w.opts.Files.Command = []string{"/bin/false"}
	k.push(t, w.Browser, cookie("a.example", "n", "new"))
	w.opts.Files = fails
	w.text(t, "browser_start")
	if has := w.jarOf(t); len(has) != 1 || has[0].Value != "new" {
		t.Errorf("%d cookies after a write that failed", len(has))
	}
}
