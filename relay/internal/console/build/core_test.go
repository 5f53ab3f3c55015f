package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
)

var imported = regexp.MustCompile(`(?m)\b(?:from|import\()\s*'([^']+)'`)

// imports returns what each TypeScript file below web/dir names in an import,
// by its path below web: a path below web too, or a package's name.
func imports(t *testing.T, dir string) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	err := filepath.WalkDir(filepath.Join(web, dir), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".ts") || strings.HasSuffix(path, ".d.ts") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(web, path)
		if err != nil {
			return err
		}
		found[file] = nil
		for _, match := range imported.FindAllStringSubmatch(string(source), -1) {
			name := match[1]
			if strings.HasPrefix(name, ".") {
				name = filepath.Join(filepath.Dir(file), name)
			}
			found[file] = append(found[file], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCoreStandsAlone: the core imports nothing from outside its folder, and the
// console nothing from inside it but the public API.
func TestCoreStandsAlone(t *testing.T) {
	core := imports(t, "core")
	if len(core) < 15 {
		t.Fatalf("only %d files in core", len(core))
	}
	for file, names := range core {
		for _, name := range names {
			test := strings.HasSuffix(file, ".test.ts") && strings.HasPrefix(name, "node:")
			if !strings.HasPrefix(name, "core/") && !test {
				t.Errorf("%s imports %s", file, name)
			}
		}
	}
	for file, names := range imports(t, "src") {
		for _, name := range names {
			if strings.HasPrefix(name, "core/") {
				t.Errorf("%s imports %s: use @fairlead/core", file, name)
			}
		}
	}
}

// tsc finds the TypeScript compiler, and Node.js to run it with.
func tsc(t *testing.T) (node, compiler string) {
	t.Helper()
	node, err := exec.LookPath("node")
	need(t, err == nil, "Node.js is missing: apt-get install nodejs")
	compiler, err = filepath.Abs(filepath.Join(web, "node_modules/typescript/bin/tsc"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(compiler)
	need(t, err == nil, "npm packages are missing: go run ./relay/internal/console/build")
	return node, compiler
}

// TestCoreIsAPackage builds the core as it would be published, and uses it as its
// package.json says.
func TestCoreIsAPackage(t *testing.T) {
	t.Parallel()
	node, compiler := tsc(t)
	dir := t.TempDir()
	run(t, node, compiler, "--project", filepath.Join(web, "core"), "--noEmit", "false", "--outDir", filepath.Join(dir, "dist"))
	manifest, err := os.ReadFile(filepath.Join(web, "core/package.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o644); err != nil {
		t.Fatal(err)
	}
	var described struct {
		Name    string
		Exports map[string]struct{ Types, Default string }
	}
	if err := json.Unmarshal(manifest, &described); err != nil {
		t.Fatal(err)
	}
	main := described.Exports["."]
	for _, name := range []string{main.Types, main.Default} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	run(t, node, "--input-type=module", "--eval", `
		const core = await import(process.argv[1]);
		const session = new core.Session({ id: 'ses_1', token: 'ut_1', origins: new core.Origins({ first: 'https://relay.test' }) });
		if (session.at('https://relay.test') !== 'https://relay.test/sessions/ses_1') throw new Error(session.at(''));`,
		filepath.Join(dir, main.Default))
}

var example = regexp.MustCompile("(?s)```ts\n(.*?)```")

// exampleOf returns the example of the core's README.
func exampleOf(t *testing.T, core string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(core, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := example.FindSubmatch(readme)
	if code == nil {
		t.Fatal("the README has no example")
	}
	return string(code[1])
}

// TestCoreKnowsNoPage: what only a page has is unknown where the core is checked,
// and the README's example is known.
func TestCoreKnowsNoPage(t *testing.T) {
	t.Parallel()
	node, compiler := tsc(t)
	core, err := filepath.Abs(filepath.Join(web, "core"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"extends":         filepath.Join(core, "tsconfig.json"),
		"compilerOptions": map[string]any{"noEmit": true, "rootDir": "/", "paths": map[string][]string{"@fairlead/core": {filepath.Join(core, "index.ts")}}},
		"include":         []string{"*.ts"},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"tsconfig.json": string(config),
		"example.ts":    exampleOf(t, core),
		"page.ts":       "export const all = [document.title, window.name, localStorage.length];\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(node, compiler, "--project", dir).CombinedOutput()
	if err == nil || strings.Contains(string(out), "example.ts") || strings.Count(string(out), "page.ts") != 3 {
		t.Errorf("want three complaints about page.ts and no other, got\n%s", out)
	}
}

// driver runs the README's example against a relay that is played: it answers the
// requests, opens the socket and takes the command.
const driver = `
import assert from 'node:assert/strict';
import { run } from './example.ts';

const answers: Record<string, unknown> = {
  '/auth/me': { user: { id: 'usr_a', name: 'alice' }, sessions: [{ id: 'ses_1' }] },
  '/grants': { grant: 'g', expires_at: new Date(Date.now() + 600_000).toISOString() },
  '/sessions/ses_1/ptys': { id: 'pty_1' },
  '/pty-session': { ws_url: 'wss://relay.test/ws', ticket: 't' },
};
const asked: string[] = [];
const sent: unknown[] = [];
globalThis.fetch = (async (url: string) => {
  const { pathname } = new URL(url);
  asked.push(pathname);
  return Response.json(answers[pathname]);
}) as typeof fetch;
globalThis.WebSocket = class {
  readyState = 1;
  onopen = () => {};
  onmessage = (_: { data: unknown }) => {};
  constructor() {
    setTimeout(() => {
      this.onopen();
      const tell = (message: object) => this.onmessage({ data: JSON.stringify(message) });
      tell({ type: 'control_state', controller: 'usr_a', requests: [], term: 1, agent_state: 'stopped', you: 'usr_a', can_control: true });
      tell({ type: 'attached', epoch: 'e', offset: 0, head: 0, cols: 80, rows: 24, mode: 'keyframe', keyframe_bytes: 0 });
    });
  }
  send(data: unknown) {
    sent.push(data);
    if (typeof data !== 'string') this.onmessage({ data: new TextEncoder().encode('done').buffer });
  }
  close() {
    this.readyState = 3;
  }
} as unknown as typeof WebSocket;

let shown = '';
const all = new Promise<void>((resolve) => {
  const show = (text: string) => { shown += text; if (text === 'done') resolve(); };
  run('https://relay.test', 'ut_x', 'make test', show).then((terminal) => all.then(() => terminal.stop()));
});
await all;
assert.deepEqual(asked, Object.keys(answers));
assert.equal(new TextDecoder().decode((sent[0] as Uint8Array).subarray(16)), 'make test\r');
assert.equal(shown, '\n--- anew ---\ndone');
process.exit(0); // the grant would be renewed for ever
`

// TestCoreExample: the README's example does what it says.
func TestCoreExample(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	need(t, err == nil, "Node.js is missing: apt-get install nodejs")
	core, err := filepath.Abs(filepath.Join(web, "core"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"example.ts": exampleOf(t, core), "driver.ts": driver} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join(dir, "driver.ts")},
		Outfile:     filepath.Join(dir, "driver.mjs"),
		Alias:       map[string]string{"@fairlead/core": filepath.Join(core, "index.ts")},
		Bundle:      true,
		Platform:    api.PlatformNode,
		Format:      api.FormatESModule,
		Write:       true,
		LogLevel:    api.LogLevelSilent,
	})
	if err := bundle.Failed(result.Errors); err != nil {
		t.Fatal(err)
	}
	run(t, node, filepath.Join(dir, "driver.mjs"))
}

// mayImport says which folders of the console a folder may use: features know the
// page's building blocks, not the page.
var mayImport = map[string]string{
	"ui":           "",
	"integrations": "ui",
	"agents":       "ui integrations",
	"terminal":     "ui agents",
	"approvals":    "ui",
	"env":          "ui",
	"files":        "ui",
	"browser":      "ui",
	"chat":         "ui approvals",
	"mytabs":       "ui",
	"plugins":      "ui",
	"recordings":   "ui",
	"sync":         "ui",
	"page":         "ui integrations agents terminal approvals env files browser chat mytabs plugins recordings sync",
	".":            "ui page",
}

// TestFolders: imports between the console's folders point downwards.
func TestFolders(t *testing.T) {
	for file, names := range imports(t, "src") {
		from, _ := filepath.Rel("src", filepath.Dir(file))
		allowed, ok := mayImport[from]
		if !ok {
			t.Errorf("%s: mayImport doesn't know its folder", file)
		}
		for _, name := range names {
			to, err := filepath.Rel("src", filepath.Dir(name))
			if !strings.HasPrefix(name, "src/") || err != nil || to == from {
				continue
			}
			if !slices.Contains(strings.Fields(allowed), to) {
				t.Errorf("%s imports %s", file, name)
			}
		}
	}
}
