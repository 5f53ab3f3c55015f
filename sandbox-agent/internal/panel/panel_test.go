package panel

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// its is how a side panel's terminal is made.
var its = op.PTYCreate{Command: "claude", Spawn: op.SpawnLazy}

// begin starts a terminal whose home is dir.
func begin(t *testing.T, p *Panel, id protocol.PTYID, create op.PTYCreate, dir string) {
	t.Helper()
	of := feature.Terminal{Session: "ses_1", PTY: id, UID: -1}
	if err := p.TerminalStarts(&feature.Start{Terminal: of, Create: create}); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := p.FurnishHome(feature.Home{Terminal: of, GID: -1, Root: root}); err != nil {
		t.Fatal(err)
	}
}

// show carries out panel.tab.
func show(p *Panel, session protocol.SessionID, id protocol.PTYID, shown op.PanelTab) error {
	command := &jws.Command{Target: protocol.CommandTarget{SessionID: session, PTYID: id}}
	run, err := p.Operations()[op.KindPanelTab](command, &shown)
	if err != nil {
		return err
	}
	_, err = run(context.Background())
	return err
}

// read reads a file of a home, which only its user may.
func read(t *testing.T, dir, name string, into any) {
	t.Helper()
	path := filepath.Join(dir, name)
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || st.Mode() != 0o600 || json.Unmarshal(text, into) != nil {
		t.Errorf("%s: %v %q %v", name, st.Mode(), text, err)
	}
}

// files returns the names in a home.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		names = append(names, one.Name())
	}
	return names
}

// A panel's terminal finds both files at home; the URL is masked here, too, and what
// lies in the way is replaced, not followed.
func TestFilesOfAPanel(t *testing.T) {
	dir, bin, elsewhere := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(filepath.Join(bin, "claude"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(elsewhere, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, tabFile)); err != nil {
		t.Fatal(err)
	}
	p := New("/nowhere:" + bin)
	begin(t, p, "pty_1", its, dir)
	var found Available
	if read(t, dir, availableFile, &found); !found.Available || *found.Path != filepath.Join(bin, "claude") || found.InstallURL != installURL || found.CheckedAt == "" {
		t.Errorf("%+v", found)
	}
	// With the first byte its program begins, and features have a say once more.
	again := feature.Start{Terminal: feature.Terminal{Session: "ses_1", PTY: "pty_1", UID: -1}, Create: its}
	if err := p.TerminalStarts(&again); err != nil {
		t.Fatal(err)
	}
	if err := show(p, "ses_1", "pty_1", op.PanelTab{TabID: 7, URL: "https://u:p@a.example/?token=s", Title: "a\x1b[2J"}); err != nil {
		t.Fatal(err)
	}
	var tab Tab
	if read(t, dir, tabFile, &tab); tab != (Tab{7, "https://a.example/?token=[REDACTED]", "a[2J"}) {
		t.Errorf("%+v", tab)
	}
	if text, err := os.ReadFile(elsewhere); err != nil || string(text) != "precious" {
		t.Errorf("%q %v", text, err)
	}
	if names := strings.Join(files(t, dir), " "); names != tabFile+" "+availableFile {
		t.Error(names)
	}
	if err := os.Remove(filepath.Join(dir, tabFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, tabFile, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := show(p, "ses_1", "pty_1", op.PanelTab{TabID: 8}); protocol.KindOf(err) != protocol.KindUnavailable || len(files(t, dir)) != 2 {
		t.Errorf("%v, %v", err, files(t, dir))
	}
}

// Other terminals have neither file, and a panel's none after its end.
func TestOtherTerminals(t *testing.T) {
	p, dir := New(""), t.TempDir()
	begin(t, p, "pty_1", op.PTYCreate{}, dir)
	begin(t, p, "pty_2", op.PTYCreate{Command: "claude"}, dir)
	begin(t, p, "pty_3", op.PTYCreate{Command: "bash", Spawn: op.SpawnLazy}, dir)
	if names := files(t, dir); len(names) > 0 {
		t.Error(names)
	}
	begin(t, p, "pty_4", its, dir)
	var found Available
	if read(t, dir, availableFile, &found); found.Available || found.Path != nil {
		t.Errorf("%+v", found)
	}
	p.TerminalEnded(feature.Terminal{Session: "ses_1", PTY: "pty_4"})
	begin(t, p, "pty_5", its, dir)
	for _, c := range []struct {
		session protocol.SessionID
		id      protocol.PTYID
	}{{"ses_1", "pty_1"}, {"ses_1", "pty_2"}, {"ses_1", "pty_4"}, {"ses_2", "pty_5"}, {"ses_1", ""}} {
		if err := show(p, c.session, c.id, op.PanelTab{}); protocol.KindOf(err) != protocol.KindNotFound {
			t.Errorf("%s of %s: %v", c.id, c.session, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := show(p, "ses_1", "pty_5", op.PanelTab{}); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Error(err)
	}
}

func TestRoute(t *testing.T) {
	mux := http.NewServeMux()
	New("").Routes(mux)
	for caps, want := range map[protocol.Capability]int{protocol.CapView: http.StatusOK, protocol.CapShell: http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/sessions/ses_1/panel/claude", nil)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r.WithContext(route.WithGrant(r.Context(), &jws.Grant{Session: "ses_1", Caps: []protocol.Capability{caps}})))
		if w.Code != want || want == http.StatusOK && !strings.Contains(w.Body.String(), `"available":false,"path":null`) {
			t.Errorf("%s: %d %s", caps, w.Code, w.Body)
		}
	}
}
