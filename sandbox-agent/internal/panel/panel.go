// Package panel keeps, in the homes of side panels' terminals, what the program there
// reads: which browser tab its person looks at, and whether it is installed (seed 000).
package panel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// Names of the files in a home.
const (
	tabFile       = "active-tab.json"
	availableFile = "claude-available.json"
)

const (
	program = "claude"
	// installURL says how it is installed (seed 000).
	installURL = "https://docs.anthropic.com/en/docs/claude-code"
)

// An Available says whether the program is there.
type Available struct {
	Available  bool    `json:"available"`
	Path       *string `json:"path"`
	InstallURL string  `json:"install_url"`
	CheckedAt  string  `json:"checked_at"`
}

// A Tab is what active-tab.json says.
type Tab struct {
	TabID int64  `json:"tabId"`
	URL   string `json:"url"`
	Title string `json:"title"`
}

// Panel knows the terminals of side panels: those that wait for a first byte to start
// claude.
type Panel struct {
	searchPath string // PATH of terminals; static

	mu    sync.Mutex
	homes map[protocol.PTYID]home // guarded by mu
}

var _ interface {
	feature.Starter
	feature.Furnisher
	feature.Ender
	feature.Operator
	feature.Router
} = (*Panel)(nil)

// A home is that of a panel's terminal.
type home struct {
	session  protocol.SessionID
	path     string // empty: it isn't furnished
	uid, gid int    // −1: the agent's own
}

// New returns a Panel for terminals with this PATH.
func New(searchPath string) *Panel {
	return &Panel{searchPath: searchPath, homes: map[protocol.PTYID]home{}}
}

// TerminalStarts implements [feature.Starter].
func (p *Panel) TerminalStarts(start *feature.Start) error {
	if start.Create.Command == program && len(start.Create.Args) == 0 && start.Create.Spawn == op.SpawnLazy {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, known := p.homes[start.PTY]; !known { // once made, once begun
			p.homes[start.PTY] = home{session: start.Session}
		}
	}
	return nil
}

// FurnishHome implements [feature.Furnisher].
func (p *Panel) FurnishHome(of feature.Home) error {
	p.mu.Lock()
	h, ours := p.homes[of.PTY]
	if ours = ours && of.Agent == ""; ours {
		h.path, h.uid, h.gid = of.Root.Name(), of.UID, of.GID
		p.homes[of.PTY] = h
	}
	p.mu.Unlock()
	if !ours {
		return nil
	}
	return h.write(of.Root, availableFile, p.look())
}

// TerminalEnded implements [feature.Ender].
func (p *Panel) TerminalEnded(t feature.Terminal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.homes, t.PTY)
}

// Operations implements [feature.Operator].
func (p *Panel) Operations() feature.Operations {
	return feature.Operations{
		op.KindPanelTab: feature.Do(func(_ context.Context, c *jws.Command, shown *op.PanelTab) (protocol.OpResult, error) {
			return feature.Done(c), p.show(c.Target.SessionID, c.Target.PTYID, shown)
		}),
	}
}

// show writes which tab is looked at. The relay has masked its URL; so does this.
func (p *Panel) show(session protocol.SessionID, id protocol.PTYID, shown *op.PanelTab) error {
	p.mu.Lock()
	h, ours := p.homes[id]
	p.mu.Unlock()
	if !ours || h.path == "" || h.session != session {
		return protocol.Errorf(protocol.KindNotFound, "no side panel has this terminal")
	}
	root, err := os.OpenRoot(h.path)
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	defer root.Close()
	err = h.write(root, tabFile, Tab{shown.TabID, op.MaskTabURL(shown.URL), op.CleanTabTitle(shown.Title)})
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return nil
}

// Routes implements [feature.Router].
func (p *Panel) Routes(mux *http.ServeMux) {
	route.GetJSON(mux, "panel/claude", protocol.CapView, func(protocol.SessionID) any { return p.look() })
}

// look returns whether the program is there.
func (p *Panel) look() Available {
	found := Available{InstallURL: installURL, CheckedAt: time.Now().UTC().Format(time.RFC3339)}
	for _, dir := range filepath.SplitList(p.searchPath) {
		path := filepath.Join(dir, program)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			found.Available, found.Path = true, &path
			break
		}
	}
	return found
}

// write replaces a file in the home atomically, for its user alone. The programs
// there may put anything in its place, which is what a rename replaces.
func (h home) write(root *os.Root, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	aside := ".fairlead-" + rand.Text()
	f, err := root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil && h.uid >= 0 {
		err = f.Chown(h.uid, h.gid)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(aside, name)
	}
	if err != nil {
		_ = root.Remove(aside) // the caller learns of the first error
	}
	return err
}
