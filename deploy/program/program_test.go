package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"demo": func() { Main("demo", "Shows what a program can be told", buildDemo) },
	})
}

func TestScripts(t *testing.T) { testscript.Run(t, testscript.Params{Dir: "testdata"}) }

// buildDemo declares a flag of every type and prints what they came to.
func buildDemo(c *Command) {
	demoShow(c)
	c.Sub("show", "Print the settings", demoShow)
	c.Sub("keys", "Work with keys", func(c *Command) {
		c.Sub("list", "List the keys", func(c *Command) {
			var state string
			c.String(&state, "state-dir", "", "where the keys are")
			c.Require("state-dir")
			c.Run(func(_ context.Context, env *Env) error {
				_, err := fmt.Fprintln(env.Stdout, "keys of", state)
				return err
			})
		})
		c.Sub("ring", "Work with rings of keys", func(c *Command) {
			c.Sub("list", "List the rings", func(c *Command) {
				c.Run(func(context.Context, *Env) error { return nil })
			})
		})
	})
	c.Sub("say", "Say texts and what is on standard input", func(c *Command) {
		var texts []string
		c.Texts(&texts, "text", "what to say")
		c.Run(func(_ context.Context, env *Env) error {
			data, err := io.ReadAll(env.Stdin)
			if err == nil {
				_, err = fmt.Fprintf(env.Stdout, "%q %q\n", texts, data)
			}
			return err
		})
	})
	c.Sub("copy", "Copy a file", func(c *Command) {
		var from, to string
		c.Arg(&from, "FROM")
		c.Arg(&to, "TO")
		c.Run(func(_ context.Context, env *Env) error {
			_, err := fmt.Fprintln(env.Stdout, from, "to", to)
			return err
		})
	})
	c.Sub("open", "Open a database", func(c *Command) {
		var database string
		c.String(&database, "database", "", "its URL")
		c.Secret(&database, "database", "its URL")
		c.Run(func(_ context.Context, env *Env) error {
			_, err := fmt.Fprintln(env.Stdout, database)
			return err
		})
	})
	c.Sub("lose", "Fail with a status", func(c *Command) {
		c.Run(func(context.Context, *Env) error {
			return fmt.Errorf("wrapped: %w", WithStatus(errors.New("lost"), 3))
		})
	})
	c.Sub("fail", "Fail", func(c *Command) {
		c.Run(func(context.Context, *Env) error {
			return Hint(errors.New("first\nsecond \x1b[31m"), "try again")
		})
	})
}

func demoShow(c *Command) {
	var (
		listen, token string
		relays        []string
		ttl           time.Duration
		count         int
		fast          bool
	)
	c.String(&listen, "listen", "127.0.0.1:0", "`address` to listen on")
	c.Strings(&relays, "relay", "relays to use")
	c.Duration(&ttl, "max-ttl", 30*time.Second, "longest life")
	c.Int(&count, "count", 1, "how many")
	c.Bool(&fast, "fast", false, "be fast")
	c.Secret(&token, "relay-token", "the relay's token")
	c.Run(func(_ context.Context, env *Env) error {
		env.Logger.Debug("debugging", "count", count)
		_, err := fmt.Fprintf(env.Stdout, "listen=%s relay=%v max-ttl=%v count=%d fast=%v token=%q\n",
			listen, relays, ttl, count, fast, token)
		return err
	})
}

// demo runs the demo program in a System of its own.
func demo(ctx context.Context, env map[string]string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Execute(ctx, System{
		Args:      args,
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		Stdout:    &out,
		Stderr:    &errs,
	}, "demo", "Shows what a program can be told", buildDemo)
	return status, out.String(), errs.String()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPrecedence sets the same flag in every place and takes away the
// strongest, one after another.
func TestPrecedence(t *testing.T) {
	config := writeFile(t, "demo.yaml", "count: 2\n")
	env := map[string]string{"FAIRLEAD_COUNT": "3", "FAIRLEAD_CONFIG": config}
	for _, tt := range []struct {
		from string
		env  map[string]string
		args []string
		want string
	}{
		{"flag", env, []string{"--count=4"}, "count=4"},
		{"environment", env, nil, "count=3"},
		{"file", nil, []string{"--config", config}, "count=2"},
		{"file named by the environment", map[string]string{"FAIRLEAD_CONFIG": config}, nil, "count=2"},
		{"default", map[string]string{"FAIRLEAD_COUNT": ""}, nil, "count=1"},
	} {
		t.Run(tt.from, func(t *testing.T) {
			status, out, errs := demo(t.Context(), tt.env, tt.args...)
			if status != 0 || !strings.Contains(out, tt.want) {
				t.Errorf("exit %d, %q, %q; want %q", status, out, errs, tt.want)
			}
		})
	}
}

func TestSecretSources(t *testing.T) {
	file := writeFile(t, "token", "from file\n")
	config := writeFile(t, "demo.yaml", "relay_token_file: "+file+"\n")
	for _, tt := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"flag", map[string]string{"FAIRLEAD_RELAY_TOKEN": "x"}, []string{"--relay-token-file", file}, `token="from file"`},
		{"variable", map[string]string{"FAIRLEAD_RELAY_TOKEN": "x"}, []string{"--config", config}, `token="x"`},
		{"file variable", map[string]string{"FAIRLEAD_RELAY_TOKEN_FILE": file}, nil, `token="from file"`},
		{"configuration", nil, []string{"--config", config}, `token="from file"`},
		{"none", nil, nil, `token=""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, out, errs := demo(t.Context(), tt.env, tt.args...); status != 0 || !strings.Contains(out, tt.want) {
				t.Errorf("exit %d, %q, %q; want %q", status, out, errs, tt.want)
			}
		})
	}
}

// TestBadConfig checks that each mistake is one line naming key and file.
func TestBadConfig(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", "listen: a\nlisetn: b\n", `FILE:2: unknown key "lisetn"`},
		{"twice", "max-ttl: 1s\nmax_ttl: 2s\n", `FILE:2: key "max_ttl" appears twice`},
		{"bad value", "\ncount: many\n", `FILE:2: count: strconv.ParseInt: parsing "many": invalid syntax`},
		{"nested", "listen:\n  host: a\n", `FILE:1: key "listen" must hold one value or a list of values`},
		{"no value", "listen:\n", `FILE:1: key "listen" must hold one value or a list of values`},
		{"not a mapping", "- listen\n", `FILE:1: want lines of the form "key: value"`},
		{"two documents", "count: 1\n---\ncount: 2\n", `FILE: more than one document`},
		{"config in config", "config: other\n", `FILE:1: unknown key "config"`},
		{"secret", "relay-token: hunter2\n", `FILE:1: the secret "relay-token" can't stand in a configuration file`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, "demo.yaml", tt.text)
			status, _, errs := demo(t.Context(), nil, "--config", path)
			line, _, _ := strings.Cut(errs, "\n")
			if want := "demo: error: " + strings.ReplaceAll(tt.want, "FILE", path); status != 1 || line != want {
				t.Errorf("exit %d, %q; want %q", status, line, want)
			}
			if strings.Contains(errs, "hunter2") {
				t.Errorf("the secret was printed: %q", errs)
			}
		})
	}
}

// TestSignal sends this process a SIGTERM, which Execute has to catch.
func TestSignal(t *testing.T) {
	started := make(chan struct{})
	go func() { // ends when started is closed, which the command below does
		<-started
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Errorf("kill: %v", err)
		}
	}()
	var errs bytes.Buffer
	status := Execute(t.Context(), System{
		LookupEnv: func(string) (string, bool) { return "", false },
		Stdout:    &errs,
		Stderr:    &errs,
	}, "demo", "Waits", func(c *Command) {
		c.Run(func(ctx context.Context, _ *Env) error {
			close(started)
			<-ctx.Done()
			return fmt.Errorf("waiting: %w", ctx.Err())
		})
	})
	if status != 0 || errs.Len() > 0 {
		t.Errorf("exit %d, output %q; want a clean end", status, errs.String())
	}
}

func TestLogging(t *testing.T) {
	for _, tt := range []struct{ format, level, want string }{
		{"json", "debug", `"msg":"debugging","count":1}`},
		{"text", "debug", `msg=debugging count=1`},
	} {
		_, _, errs := demo(t.Context(), nil, "--log-format", tt.format, "--log-level", tt.level)
		if !strings.Contains(errs, tt.want) {
			t.Errorf("%s: %q; want %q", tt.format, errs, tt.want)
		}
	}
}

func TestHintIsKeptInTheChain(t *testing.T) {
	if err := Hint(os.ErrNotExist, "make it"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the hinted error lost its cause")
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{[]string{"copy", "a", "b"}, 0, "a to b\n", ""},
		{[]string{"copy", "a"}, 1, "", "demo: error: TO is missing\ndemo: hint: --help shows what the command takes\n"},
		{[]string{"copy", "a", "b", "c"}, 1, "", "demo: error: unexpected argument \"c\"\n"},
		{[]string{"copy", "", "b"}, 1, "", "demo: error: FROM is missing\ndemo: hint: --help shows what the command takes\n"},
		{[]string{"lose"}, 3, "", "demo: error: wrapped: lost\n"},
	} {
		status, stdout, stderr := demo(t.Context(), nil, tt.args...)
		if status != tt.status || stdout != tt.stdout || stderr != tt.stderr {
			t.Errorf("%q: %d %q %q, want %d %q %q", tt.args, status, stdout, stderr, tt.status, tt.stdout, tt.stderr)
		}
	}
}

// TestUsageStatus: how the program was called is told apart from what it met.
func TestUsageStatus(t *testing.T) {
	for _, tt := range []struct {
		args   string
		status int
	}{
		{"run", 1},
		{"run --rate 0.5", 1},
		{"run --rate much", 2},
		{"run --unknown", 2},
		{"run word", 2},
		{"walk", 2},
		{"hidden", 0},
	} {
		var out, errs bytes.Buffer
		status := Execute(t.Context(), System{
			Args: strings.Fields(tt.args), LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &errs,
		}, "demo", "Fails", func(c *Command) {
			c.UsageStatus(2)
			c.Sub("run", "Fail", func(c *Command) {
				var rate float64
				c.Float(&rate, "rate", 1, "how often")
				c.Run(func(context.Context, *Env) error { return errors.New("met something") })
			})
			c.Sub("hidden", "Work", func(c *Command) {
				c.Hide()
				c.Run(func(context.Context, *Env) error { return nil })
			})
		})
		if status != tt.status {
			t.Errorf("%s: status %d, want %d: %s", tt.args, status, tt.status, errs.String())
		}
	}
}

// TestSometimesSecret: a value that may stand on the command line or in a file.
func TestSometimesSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	variable := map[string]string{"FAIRLEAD_DATABASE": "from-env"}
	for _, tt := range []struct {
		env            map[string]string
		args           []string
		stdout, stderr string
	}{
		{nil, nil, "\n", ""},
		{nil, []string{"--database", "plain"}, "plain\n", ""},
		{nil, []string{"--database-file", file}, "from-file\n", ""},
		{variable, nil, "from-env\n", ""},
		{variable, []string{"--database", "plain"}, "plain\n", ""},
		{variable, []string{"--database-file", file}, "from-file\n", ""},
		{nil, []string{"--database", "plain", "--database-file", file}, "", "demo: error: both --database and --database-file are set\n"},
	} {
		_, stdout, stderr := demo(t.Context(), tt.env, append([]string{"open"}, tt.args...)...)
		if stdout != tt.stdout || stderr != tt.stderr {
			t.Errorf("%v %q: %q %q, want %q %q", tt.env, tt.args, stdout, stderr, tt.stdout, tt.stderr)
		}
	}
}

// TestPreparedFile: until it is committed the file is as it was, and a
// replacement that is discarded leaves nothing.
func TestPreparedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	holds := func(want string) {
		t.Helper()
		data, err := os.ReadFile(path)
		entries, _ := os.ReadDir(dir)
		if err != nil || string(data) != want || len(entries) != 1 {
			t.Errorf("%q, %v, beside %d others", data, err, len(entries)-1)
		}
	}
	must(ReplaceFile(path, []byte("old"), 0o600))
	r, err := PrepareFile(path, []byte("new"), 0o600)
	must(err)
	must(r.Discard())
	holds("old")
	r, err = PrepareFile(path, []byte("new"), 0o600)
	must(err)
	must(r.Commit())
	holds("new")
	must(ReplaceFileBy(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("newer", 10_000))
		return err
	}))
	holds(strings.Repeat("newer", 10_000))
	broken := errors.New("broken")
	if err := ReplaceFileBy(path, 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	}); !errors.Is(err, broken) {
		t.Errorf("what can't be written: %v", err)
	}
	holds(strings.Repeat("newer", 10_000))
	must(ReplaceFile(path, []byte("new"), 0o600))
	if _, err := PrepareFile(dir, nil, 0o600); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("of a directory: %v", err)
	}
	if _, err := PrepareFile(filepath.Join(dir, "none", "file"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
	holds("new")
}
