package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// build writes dir/dist: index.html, and under assets/ what it refers to, named
// by content so that a browser may keep it for good.
func build(dir string) error {
	web, dist := filepath.Join(dir, "web"), filepath.Join(dir, "dist")
	if err := install(web); err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		EntryPoints:       []string{filepath.Join(web, "src/main.ts"), filepath.Join(web, "src/icon.svg")},
		Outdir:            filepath.Join(dist, "assets"),
		EntryNames:        "[name]-[hash]",
		ChunkNames:        "part-[hash]", // what is loaded when it is needed
		Splitting:         true,
		Loader:            map[string]api.Loader{".svg": api.LoaderCopy},
		Bundle:            true,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		MinifySyntax:      true,
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		LegalComments:     api.LegalCommentsEndOfFile, // the licences ask for their notice
		Plugins:           []api.Plugin{strictStyles, strictMarkup(filepath.Join(web, "src/recordings/markup.ts"))},
		LogLevel:          api.LogLevelSilent,
	})
	if err := messages(result.Errors); err != nil {
		return err
	}
	return write(dist, filepath.Join(web, "src/index.html"), result.OutputFiles)
}

// install brings the npm packages that package-lock.json names, unless they are
// there already.
func install(web string) error {
	lock, err := os.Stat(filepath.Join(web, "package-lock.json"))
	if err != nil {
		return fmt.Errorf("no console here (run from the repository's root, or name its folder by -dir): %w", err)
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

// write replaces dist's content. index.html comes last: with it the page counts
// as built.
func write(dist, index string, files []api.OutputFile) error {
	assets := filepath.Join(dist, "assets")
	if err := errors.Join(os.RemoveAll(assets), os.MkdirAll(assets, 0o755)); err != nil {
		return err
	}
	page, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	html := string(page)
	for _, file := range files {
		name := filepath.Base(file.Path)
		if err := os.WriteFile(filepath.Join(assets, name), file.Contents, 0o644); err != nil {
			return err
		}
		if strings.HasPrefix(name, "part-") {
			continue // the page's script refers to it
		}
		mark := map[string]string{".js": "%SCRIPT%", ".css": "%STYLE%", ".svg": "%ICON%"}[filepath.Ext(name)]
		if mark == "" || !strings.Contains(html, mark) {
			return fmt.Errorf("%s: index.html has no place for it", name)
		}
		html = strings.ReplaceAll(html, mark, "/assets/"+name)
	}
	return os.WriteFile(filepath.Join(dist, "index.html"), []byte(html), 0o644)
}

// strictStyles changes the four places in which xterm.js needs 'unsafe-inline'
// for styles: it sets style attributes, and fills <style> elements (see
// web/src/ui/adopted-style.ts). A new version of xterm.js that does so elsewhere,
// or in other words, fails the build.
var strictStyles = api.Plugin{
	Name: "strict-styles",
	Setup: func(b api.PluginBuild) {
		rewrite(b, `@xterm/xterm/lib/xterm\.mjs$`, "", `setAttribute("style"`, []change{
			{"t.setAttribute(\"style\",`${t.getAttribute(\"style\")||\"\"}${e};`)", "t.style.cssText+=e+\";\"", 1},
			{`createElement("style")`, `createElement("adopted-style")`, 3},
		})
	},
}

// strictMarkup changes the two places in which asciinema-player makes elements
// of strings, which Trusted Types forbid: markup, the module, makes them one by
// one. A new version that does so elsewhere fails the build.
func strictMarkup(markup string) api.Plugin {
	return api.Plugin{
		Name: "strict-markup",
		Setup: func(b api.PluginBuild) {
			b.OnResolve(api.OnResolveOptions{Filter: `^console:markup$`}, func(api.OnResolveArgs) (api.OnResolveResult, error) {
				path, err := filepath.Abs(markup)
				return api.OnResolveResult{Path: path}, err
			})
			rewrite(b, `asciinema-player/dist/opts-[^/]*\.js$`, "import { markup } from \"console:markup\";\n", "innerHTML", []change{
				{"t.innerHTML = html;", "t.content.append(markup(html));", 1},
				{"symbol.innerHTML = content;", "symbol.append(markup(content, true));", 1},
			})
		},
	}
}

// A change replaces a text that must occur count times.
type change struct {
	old, new string
	count    int
}

// rewrite makes changes in the module that matches filter, puts head before it,
// and fails where the result still holds what must not be there.
func rewrite(b api.PluginBuild, filter, head, forbidden string, changes []change) {
	b.OnLoad(api.OnLoadOptions{Filter: filter}, func(args api.OnLoadArgs) (api.OnLoadResult, error) {
		source, err := os.ReadFile(args.Path)
		if err != nil {
			return api.OnLoadResult{}, err
		}
		text := string(source)
		for _, c := range changes {
			if n := strings.Count(text, c.old); n != c.count {
				return api.OnLoadResult{}, fmt.Errorf("%q occurs %d times, not %d: review it under the Content-Security-Policy", c.old, n, c.count)
			}
			text = strings.ReplaceAll(text, c.old, c.new)
		}
		if strings.Contains(text, forbidden) {
			return api.OnLoadResult{}, fmt.Errorf("%q in a new place: review it under the Content-Security-Policy", forbidden)
		}
		text = head + text
		return api.OnLoadResult{Contents: &text, Loader: api.LoaderJS}, nil
	})
}

func messages(list []api.Message) error {
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(strings.Join(api.FormatMessages(list, api.FormatMessagesOptions{}), "")))
}
