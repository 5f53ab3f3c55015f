package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
)

// build writes dir/dist: index.html, and under assets/ what it refers to, named
// by content so that a browser may keep it for good.
func build(dir string) error {
	web, dist := filepath.Join(dir, "web"), filepath.Join(dir, "dist")
	if err := bundle.Install(web); err != nil {
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
		Plugins:           []api.Plugin{bundle.StrictStyles, strictMarkup(filepath.Join(web, "src/recordings/markup.ts"))},
		LogLevel:          api.LogLevelSilent,
	})
	if err := bundle.Failed(result.Errors); err != nil {
		return err
	}
	return write(dist, filepath.Join(web, "src/index.html"), result.OutputFiles)
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
			bundle.Rewrite(b, `asciinema-player/dist/opts-[^/]*\.js$`, "import { markup } from \"console:markup\";\n", "innerHTML", []bundle.Change{
				{Old: "t.innerHTML = html;", New: "t.content.append(markup(html));", Count: 1},
				{Old: "symbol.innerHTML = content;", New: "symbol.append(markup(content, true));", Count: 1},
			})
		},
	}
}
