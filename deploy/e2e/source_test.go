package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	_ "github.com/fairlead/fairlead/deploy/source" // a change in it is a change of this test
	"github.com/fairlead/fairlead/protocol/op"
)

// A computer is a person's: a home with a real Chromium, and fairlead-source.
type computer struct {
	t    *testing.T
	home string
}

func newComputer(t *testing.T) *computer {
	t.Helper()
	must(t, build(filepath.Join("..", ".."), programs, []string{"./deploy/source/cmd/fairlead-source"}))
	return &computer{t, t.TempDir()}
}

// source runs fairlead-source, and returns what it answers.
func (c *computer) source(ctx context.Context, stdin string, args ...string) (answer map[string]any, failed bool) {
	c.t.Helper()
	cmd := c.command(ctx, append(args, "--json")...)
	cmd.Stdin = strings.NewReader(stdin)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if jsonErr := json.Unmarshal(out, &answer); jsonErr != nil {
		c.t.Fatalf("fairlead-source %s: %v: %s%s", args, err, out, said.Bytes())
	}
	return answer, err != nil
}

func (c *computer) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "fairlead-source"), args...)
	cmd.Env = []string{"HOME=" + c.home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// want runs fairlead-source, which must not fail.
func (c *computer) want(ctx context.Context, stdin string, args ...string) map[string]any {
	c.t.Helper()
	answer, failed := c.source(ctx, stdin, args...)
	if failed {
		c.t.Fatalf("fairlead-source %s: %v", args, answer)
	}
	return answer
}

// visits opens the pages in the computer's Chromium, one after the other, and ends it:
// then its files have all that it was told.
func (c *computer) visits(pages ...string) {
	c.t.Helper()
	w := openWindow(c.t, "laptop", pages[0], 1280, 800, chromedp.UserDataDir(filepath.Join(c.home, ".config", "chromium")), chromedp.Flag("password-store", "basic"))
	for _, page := range pages[1:] {
		w.run(chromedp.Navigate(page))
	}
	must(c.t, chromedp.Cancel(w.ctx))
}

// signIn has a site at this computer's own address, which sets cookies.
func signIn(t *testing.T) *httptest.Server {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if strings.Contains(name, ".") {
			http.NotFound(w, r) // a browser asks for favicon.ico
			return
		}
		http.SetCookie(w, &http.Cookie{Name: name, Value: canary + name, Path: "/", HttpOnly: name == "stopped", MaxAge: map[bool]int{true: -1, false: 3600}[r.URL.Query().Has("out")]})
		fmt.Fprint(w, "welcome")
	}))
	t.Cleanup(site.Close)
	return site
}

// TestSource: what a person's real Chromium has of a site is in the sandbox's, after
// the three commands of the README: exactly the sites that were named, and what they
// have signed out of goes. What other sites have stays with the person.
func TestSource(t *testing.T) {
	findChromium(t)
	s := own(t)
	ctx := within(t)
	c, site := newComputer(t), signIn(t)
	_, port := startWebapp(t, s)
	see := func(when string, want map[string]string) {
		t.Helper()
		if seen := sent(ctx, t, s, port); !maps.Equal(seen, want) {
			t.Fatalf("%s: the server sees %v, want %v", when, slices.Sorted(maps.Keys(seen)), slices.Sorted(maps.Keys(want)))
		}
	}
	c.visits(site.URL+"/stopped", site.URL+"/running", strings.Replace(site.URL, "127.0.0.1", "localhost", 1)+"/elsewhere")

	if answer, failed := c.source(ctx, "", "push"); !failed || !strings.Contains(fmt.Sprint(answer), "not paired") {
		t.Errorf("before: %v", answer)
	}
	link := s.Ready.User("alice").Base + "/#token=" + s.Ready.User("alice").Token
	c.want(ctx, link+"\n", "login", s.Ready.ControlPlane.URL)
	if answer, failed := c.source(ctx, s.Ready.User("carol").Token, "login", s.Ready.ControlPlane.URL, "--config-dir", filepath.Join(t.TempDir(), "carol")); !failed || !strings.Contains(fmt.Sprint(answer), "may not") {
		t.Errorf("somebody who may only watch: %v", answer)
	}
	paired := c.want(ctx, "", "pair")
	if answer := c.want(ctx, "", "push"); answer["cookies"] != 0.0 {
		t.Errorf("no site is named, and there went %v", answer)
	}
	c.want(ctx, "", "accounts", "on", "127.0.0.1")
	if answer := c.want(ctx, "", "push", "--dry-run"); answer["cookies"] != 2.0 || answer["dropped"] != 1.0 {
		t.Errorf("would send %v", answer)
	}
	if answer := c.want(ctx, "", "push"); answer["sandbox"].(map[string]any)["written"] != 2.0 {
		t.Fatalf("sent %v", answer)
	}
	see("pushed", map[string]string{"stopped": canary + "stopped", "running": canary + "running"})
	state, raw := readSync(ctx, t, s, "alice")
	if len(state.Pairings) != 1 || state.Pairings[0].Fingerprint != paired["fingerprint"] || strings.Contains(raw, "localhost") {
		t.Errorf("the sandbox has %s", raw)
	}
	if answer := c.want(ctx, "", "doctor"); answer["exit_code"] != 0.0 {
		t.Errorf("doctor: %v", answer)
	}

	c.visits(site.URL+"/running?out", site.URL+"/later")
	c.want(ctx, "", "push")
	see("signed out of one", map[string]string{"stopped": canary + "stopped", "later": canary + "later"})

	c.want(ctx, "", "unpair")
	see("unpaired", map[string]string{})
	if answer := c.want(ctx, "", "status"); answer["paired"] != false {
		t.Errorf("unpaired: %v", answer)
	}
	must(t, filepath.WalkDir(c.home, func(path string, about os.DirEntry, err error) error {
		if err != nil || about.IsDir() || !strings.Contains(path, "fairlead-source") {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(canary)) {
			t.Errorf("%s has a value", path)
		}
		return err
	}))
}

// TestSourceWatch: what is signed in to while fairlead-source watches is there soon
// after the browser has written it, and so is what the list is changed by.
func TestSourceWatch(t *testing.T) {
	findChromium(t)
	s := own(t)
	ctx := within(t)
	c, site := newComputer(t), signIn(t)
	_, port := startWebapp(t, s)
	c.want(ctx, s.Ready.User("alice").Token, "login", s.Ready.ControlPlane.URL)
	c.want(ctx, "", "pair", "--site", "unseen.example")
	c.visits(site.URL + "/stopped")

	watch := c.command(context.WithoutCancel(ctx), "push", "--watch", "--json") // it ends as people end it
	var said bytes.Buffer
	watch.Stdout, watch.Stderr = &said, &said
	must(t, watch.Start())
	t.Cleanup(func() {
		_ = watch.Process.Signal(os.Interrupt)
		if err := watch.Wait(); err != nil {
			t.Errorf("the watch ended with %v: %s", err, said.Bytes())
		}
	})
	cookies := func(n int) func() bool {
		return func() bool {
			state, _ := readSync(ctx, t, s, "alice")
			return slices.ContainsFunc(state.Sites, func(one op.SyncSite) bool { return one.Cookies == n })
		}
	}
	began := time.Now()
	c.want(ctx, "", "accounts", "on", "127.0.0.1")
	await(t, "the site that was named", cookies(1))
	t.Logf("named → there: %v", time.Since(began))
	c.visits(site.URL + "/later")
	began = time.Now()
	await(t, "what was signed in to", cookies(2))
	t.Logf("browser's end → there: %v", time.Since(began))
	if seen := sent(ctx, t, s, port); seen["later"] != canary+"later" || seen["stopped"] != canary+"stopped" {
		t.Errorf("the server sees %v", slices.Sorted(maps.Keys(seen)))
	}
}
