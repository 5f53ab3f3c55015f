package history

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Programs know which coding agents' programs are installed.
type Programs interface {
	// Installed returns the version of a provider's program, "" if that can't be
	// told.
	Installed(name string) (version string, ok bool)
}

// A SearchPath finds programs in the folders of a PATH. It starts none.
type SearchPath string

// programNames are those that aren't their provider's.
var programNames = map[string]string{"cursor": "cursor-agent"}

// Installed implements [Programs].
func (p SearchPath) Installed(name string) (string, bool) {
	if other, ok := programNames[name]; ok {
		name = other
	}
	for _, dir := range filepath.SplitList(string(p)) {
		file, err := filepath.EvalSymlinks(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return packageVersion(file), true
		}
	}
	return "", false
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
