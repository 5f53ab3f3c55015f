package history

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// Programs know which coding agents' programs are installed.
type Programs interface {
	// Installed says how a provider's program stands. It starts none.
	Installed(p provider.Provider) Program
	// Usable is Installed, and whether the program has the protocol by which the
	// provider speaks with it.
	Usable(ctx context.Context, p provider.Provider) Program
}

// A Program says how a provider's program stands.
type Program struct {
	Installed bool   `json:"installed"`
	Version   string `json:"version,omitempty"` // "": that can't be told
	Usable    bool   `json:"usable"`
	Problem   string `json:"problem,omitempty"` // why it isn't usable, and what helps

	file string // its path, without links
	seen fs.FileInfo
}

// A Starter starts an installed program by itself. [codingagent.Host] implements
// it.
type Starter interface {
	Probe(ctx context.Context, program string, args []string) (printed []byte, code int, err error)
}

// An Installation is the programs in the folders of a PATH. It is safe for
// concurrent use.
type Installation struct {
	// Static after construction.
	SearchPath string
	Starter    Starter // nil: what is installed is taken to be usable

	mu     sync.Mutex
	probed map[string]*probed // guarded by mu: by the path of a program
}

// A probed program.
type probed struct {
	mu sync.Mutex // held while it is probed
	// Guarded by mu.
	modified time.Time // of the program then; zero: it never was
	size     int64
	problem  string
}

// Installed implements [Programs].
func (i *Installation) Installed(p provider.Provider) Program {
	name := p.Command(provider.Start{}).Program
	for _, dir := range filepath.SplitList(i.SearchPath) {
		file, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return Program{Installed: true, Version: packageVersion(file), Usable: true, file: filepath.Join(dir, name), seen: st}
		}
	}
	return Program{Problem: name + " is not installed in the sandbox; this installs it: " + p.Command(provider.Start{}).Install}
}

// Usable implements [Programs]. A program is asked once, and again when it is
// another one.
func (i *Installation) Usable(ctx context.Context, p provider.Provider) Program {
	found := i.Installed(p)
	prober, may := p.(provider.Prober)
	if !found.Installed || !may || i.Starter == nil {
		return found
	}
	i.mu.Lock()
	if i.probed == nil {
		i.probed = make(map[string]*probed)
	}
	known := i.probed[found.file]
	if known == nil {
		known = &probed{}
		i.probed[found.file] = known
	}
	i.mu.Unlock()
	known.mu.Lock()
	defer known.mu.Unlock()
	if !known.modified.Equal(found.seen.ModTime()) || known.size != found.seen.Size() {
		probe := prober.Probe()
		printed, code, err := i.Starter.Probe(ctx, found.file, probe.Args)
		if err != nil {
			found.Problem = "It can't be told whether this version of " + p.Name() + " can be used: " + err.Error()
			return found
		}
		known.modified, known.size, known.problem = found.seen.ModTime(), found.seen.Size(), ""
		if code != 0 || !bytes.Contains(printed, []byte(probe.Prints)) {
			known.problem = "This version of " + p.Name() + " is too old for conversations; this installs a newer one: " + p.Command(provider.Start{}).Install
		}
	}
	found.Usable, found.Problem = known.problem == "", known.problem
	return found
}

// packageVersion returns what the package.json above a program says, "" if there
// is none: most coding agents are npm packages.
func packageVersion(file string) string {
	dir := filepath.Dir(file)
	for range 3 {
		content, err := os.ReadFile(filepath.Join(dir, "package.json"))
		var of struct {
			Version string `json:"version"`
		}
		if err == nil && json.Unmarshal(content, &of) == nil && len(of.Version) < 64 {
			return strings.TrimSpace(of.Version)
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
