package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
)

// parts are what can be built, each with its scripts and pages below web/src. A
// part's files go into dist/<part>, and from there side by side into an
// extension.
var parts = map[string]struct{ scripts, pages []string }{
	"panel": {
		scripts: []string{"panel/panel.ts", "panel/worker.ts", "panel/content.ts", "welcome/welcome.ts"},
		pages:   []string{"panel/panel.html", "welcome/welcome.html"},
	},
	"pages": {
		scripts: []string{"pages/pages-worker.ts", "pages/pages.ts"},
		pages:   []string{"pages/pages.html"},
	},
	"sync": {
		scripts: []string{"sync/sync-worker.ts", "sync/sync.ts"},
		pages:   []string{"sync/sync.html"},
	},
}

// build writes dir/dist.
func build(dir, console string) error {
	if err := bundle.Install(console); err != nil {
		return err
	}
	src, dist := filepath.Join(dir, "web/src"), filepath.Join(dir, "dist")
	for _, side := range iconSizes {
		data, err := icon(side)
		if err == nil {
			err = os.WriteFile(filepath.Join(dist, fmt.Sprintf("icon-%d.png", side)), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	for name, part := range parts {
		var entries []string
		for _, script := range part.scripts {
			entries = append(entries, filepath.Join(src, script))
		}
		options, err := options(console)
		if err != nil {
			return err
		}
		options.EntryPoints = entries
		options.Outdir, options.EntryNames = filepath.Join(dist, name), "[name]"
		options.MinifySyntax, options.MinifyWhitespace, options.MinifyIdentifiers = true, true, true
		options.LegalComments = api.LegalCommentsEndOfFile // the licences ask for their notice
		result := api.Build(options)
		if err := bundle.Failed(result.Errors); err != nil {
			return err
		}
		var pages []string
		for _, page := range part.pages {
			pages = append(pages, filepath.Join(src, page))
		}
		if err := write(filepath.Join(dist, name), pages, result.OutputFiles); err != nil {
			return err
		}
	}
	return nil
}

// options are how everything is bundled: the console's core, building blocks and
// packages have names, and their places are said here alone.
func options(console string) (api.BuildOptions, error) {
	full, err := filepath.Abs(console)
	if err != nil {
		return api.BuildOptions{}, err
	}
	return api.BuildOptions{
		Alias: map[string]string{
			"@fairlead/core":    filepath.Join(full, "core/index.ts"),
			"@fairlead/console": filepath.Join(full, "src"),
		},
		NodePaths: []string{filepath.Join(full, "node_modules")},
		Loader:    map[string]api.Loader{".svg": api.LoaderDataURL},
		Bundle:    true,
		Format:    api.FormatESModule,
		Target:    api.ES2022,
		Plugins:   []api.Plugin{bundle.StrictStyles},
		LogLevel:  api.LogLevelSilent,
	}, nil
}

// write replaces a part's files. Its pages come last: with them it counts as
// built.
func write(dir string, pages []string, files []api.OutputFile) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file.Path)), file.Contents, 0o644); err != nil {
			return err
		}
	}
	for _, page := range pages {
		html, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(page)), html, 0o644); err != nil {
			return err
		}
	}
	return nil
}
