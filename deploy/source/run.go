package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/browsers"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
)

// A run is one command under way.
type run struct {
	env    *program.Env
	dir    config.Dir
	asJSON bool
}

// command declares what all commands have: the folder, --json, and how errors are told.
func command(c *program.Command, do func(context.Context, *run) error) {
	var folder string
	r := &run{}
	c.String(&folder, "config-dir", "", "`folder` of source.yaml, blocklist.yaml and keys (default: fairlead-source in your configuration's)")
	c.Bool(&r.asJSON, "json", false, "answer in JSON")
	c.Run(func(ctx context.Context, env *program.Env) error {
		r.env = env
		err := r.open(folder)
		if err == nil {
			err = do(ctx, r)
		}
		if err == nil || errors.Is(err, errTold) {
			return err
		}
		if ctx.Err() != nil { // no clean end: what was asked for isn't done
			err = errInterrupted
		}
		if r.asJSON {
			r.encode(map[string]any{"error": body(err)})
		}
		return hinted(err)
	})
}

func (r *run) open(folder string) (err error) {
	if folder == "" {
		base, err := os.UserConfigDir()
		if err != nil {
			return err
		}
		folder = filepath.Join(base, "fairlead-source")
	}
	r.dir, err = config.Open(folder)
	return err
}

// hinted adds what to do.
func hinted(err error) error {
	switch {
	case errors.Is(err, config.ErrNotLoggedIn):
		return program.Hint(err, "fairlead-source login https://your-control-plane")
	case errors.Is(err, config.ErrNotPaired):
		return program.Hint(err, "fairlead-source pair --site github.com")
	}
	return err
}

// say answers: in text, or with v in JSON.
func (r *run) say(v any, format string, args ...any) {
	if r.asJSON {
		r.encode(v)
		return
	}
	fmt.Fprintf(r.env.Stdout, strings.TrimSuffix(format, "\n")+"\n", args...)
}

// aside tells people something that isn't the answer.
func (r *run) aside(format string, args ...any) {
	if !r.asJSON {
		fmt.Fprintf(r.env.Stdout, format+"\n", args...)
	}
}

func (r *run) encode(v any) {
	enc := json.NewEncoder(r.env.Stdout)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // a closed output isn't worth a word
}

// place returns where this person's browsers are.
func place() (browsers.Place, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return browsers.Place{}, err
	}
	settings, err := os.UserConfigDir()
	return browsers.Place{Home: home, Config: settings, Darwin: runtime.GOOS == "darwin"}, err
}

// plural is a number with what is counted.
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
