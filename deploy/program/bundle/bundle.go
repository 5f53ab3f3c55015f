// Package bundle is what the builds of our pages share: npm packages, and how
// esbuild makes them keep a strict Content-Security-Policy.
package bundle

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// Install brings the npm packages that package-lock.json names, unless they are
// there already.
func Install(web string) error {
	lock, err := os.Stat(filepath.Join(web, "package-lock.json"))
	if err != nil {
		return fmt.Errorf("no package-lock.json here (run from the repository's root, or name its folder by -dir): %w", err)
	}
	installed, err := os.Stat(filepath.Join(web, "node_modules/.package-lock.json"))
	if err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is missing (it comes with Node.js 20 or later)")
	}
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = web
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
}

// StrictStyles changes the four places in which xterm.js needs 'unsafe-inline'
// for styles: it sets style attributes, and fills <style> elements (see the
// console's ui/adopted-style.ts). A new version of xterm.js that does so elsewhere,
// or in other words, fails the build.
var StrictStyles = api.Plugin{
	Name: "strict-styles",
	Setup: func(b api.PluginBuild) {
		Rewrite(b, `@xterm/xterm/lib/xterm\.mjs$`, "", `setAttribute("style"`, []Change{
			{Old: "t.setAttribute(\"style\",`${t.getAttribute(\"style\")||\"\"}${e};`)", New: "t.style.cssText+=e+\";\"", Count: 1},
			{Old: `createElement("style")`, New: `createElement("adopted-style")`, Count: 3},
		})
	},
}

// A Change replaces a text that must occur Count times.
type Change struct {
	Old, New string
	Count    int
}

// Rewrite makes changes in the module that matches filter, puts head before it,
// and fails where the result still holds what must not be there.
func Rewrite(b api.PluginBuild, filter, head, forbidden string, changes []Change) {
	b.OnLoad(api.OnLoadOptions{Filter: filter}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
		source, err := os.ReadFile(args.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		text := string(source)
		for _, c := range changes {
			if n := strings.Count(text, c.Old); n != c.Count {
				return api.OnLoadResult{}, fmt.Errorf("%q occurs %d times, not %d: review it under the Content-Security-Policy", c.Old, n, c.Count)
			}
			text = strings.ReplaceAll(text, c.Old, c.New)
		}
		if strings.Contains(text, forbidden) {
			return api.OnLoadResult{}, fmt.Errorf("%q in a new place: review it under the Content-Security-Policy", forbidden)
		}
		text = head + text
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, nil
	})
}

// Failed returns what esbuild complains about as an error.
func Failed(list []api.Message) error {
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(strings.Join(api.FormatMessages(list, api.FormatMessagesOptions{}), "")))
}
