// Package program gives every executable the same interface: flags, which
// override FAIRLEAD_* environment variables, which override a --config file;
// logging, --version, signals, and one-line errors.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
)

// A System is a program's view of the operating system.
type System struct {
	Args      []string // without the program's own name
	LookupEnv func(name string) (string, bool)
	Stdin     io.Reader // nil: empty
	Stdout    io.Writer
	Stderr    io.Writer
}

// An Env is what a running command gets from its program.
type Env struct {
	Logger   *slog.Logger // writes to stderr
	Stdin    io.Reader
	Stdout   io.Writer
	Revision string
}

// A RunFunc runs a command. SIGINT or SIGTERM ends its context; returning that
// context's error is then a clean end.
type RunFunc func(ctx context.Context, env *Env) error

// Main runs the program name with the process's arguments and exits with 0, or
// with 1 (see [WithStatus]) after a line "name: error: …" on stderr, and
// possibly another one "name: hint: …". build declares flags and subcommands.
func Main(name, short string, build func(*Command)) {
	os.Exit(Execute(context.Background(), System{
		Args:      os.Args[1:],
		LookupEnv: os.LookupEnv,
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Stderr:    os.Stderr,
	}, name, short, build))
}

// Execute does what [Main] does in the given System and returns the exit
// status.
func Execute(ctx context.Context, sys System, name, short string, build func(*Command)) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends ctx; a second one kills the process.
	defer context.AfterFunc(ctx, stop)()

	f := newFront(sys, name, short)
	build(f.root)
	f.root.cobra.SetArgs(sys.Args)
	err := f.root.cobra.ExecuteContext(ctx)
	if err == nil {
		err = f.unknown
	}
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return 0
	}
	printError(sys.Stderr, name, err)
	s, ok := errors.AsType[*statusError](err)
	switch {
	case ok:
		return s.status
	case !f.began:
		f.answerUsage(err)
		return f.usageStatus
	}
	return 1
}

// A front is shared by all commands of a program.
type front struct {
	sys       System
	root      *Command
	commands  []*Command
	common    []*setting // of every command
	config    string
	logFormat string
	logLevel  string
	unknown   error // the word that named no subcommand

	usageStatus int    // for errors before a command began
	usageFlag   string // that has them answered in JSON, too; "": none
	began       bool   // a command is running or has run
}

func newFront(sys System, name, short string) *front {
	if sys.Stdin == nil {
		sys.Stdin = strings.NewReader("")
	}
	f := &front{sys: sys, usageStatus: 1}
	f.root = f.command(name, short)
	c := f.root.cobra
	c.Long = fmt.Sprintf(`%s.

Every flag may also be set as an environment variable (--log-level is
%sLOG_LEVEL) or as a key of the --config file. A flag wins over the
environment, which wins over the file.`, short, envPrefix)
	c.Version = Revision()
	c.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	c.SilenceErrors, c.SilenceUsage, c.DisableSuggestions = true, true, true
	c.SetOut(sys.Stdout)
	c.SetErr(sys.Stderr)
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return Hint(err, likelyFlag(c, err)+"--help lists the flags") })

	c.SetHelpFunc(f.help(c.HelpFunc()))

	flags := c.PersistentFlags()
	flags.StringVar(&f.config, "config", "", "YAML `file` with flags as keys")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	f.common = []*setting{{name: "log-format"}, {name: "log-level"}}
	return f
}

// help prints a command's help. cobra also calls it, without an error, if a
// command that only has subcommands gets another word.
func (f *front) help(show func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(c *cobra.Command, words []string) {
		asked := c.Flags().Lookup("help")
		if extra := c.Flags().Args(); !c.Runnable() && len(extra) > 0 && (asked == nil || !asked.Changed) {
			f.unknown = unknownCommand(c, extra[0])
			return
		}
		show(c, words)
	}
}

// subcommands returns the names of c's visible subcommands.
func subcommands(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// A Command declares a program or one of its subcommands.
type Command struct {
	front    *front
	cobra    *cobra.Command
	settings []*setting
	required []string

	arguments []argument
	rest      *[]string // the words after them; nil: none allowed
}

func (f *front) command(name, short string) *Command {
	c := &Command{front: f, cobra: &cobra.Command{Use: name, Short: short, Args: noWords}}
	f.commands = append(f.commands, c)
	return c
}

// UsageStatus makes the program exit with status instead of 1 after a usage
// error: an unknown command or flag, a missing argument, a malformed value.
func (c *Command) UsageStatus(status int) { c.front.usageStatus = status }

// UsageInJSON has a usage error answered on stdout, too, when the flag is on the command
// line: {"error":{"message":…,"name":"RequestError"}}. Who reads JSON finds it there.
func (c *Command) UsageInJSON(flag string) { c.front.usageFlag = "--" + flag }

func (f *front) answerUsage(err error) {
	if f.usageFlag == "" || !slices.Contains(f.sys.Args, f.usageFlag) {
		return
	}
	answer := map[string]map[string]string{"error": {"message": err.Error(), "name": "RequestError"}}
	_ = json.NewEncoder(f.sys.Stdout).Encode(answer) // a closed output isn't worth a word
}

// Hide hides the command from the help: only programs start it.
func (c *Command) Hide() { c.cobra.Hidden = true }

// Each calls tell for every flag of the command with its value as text, in the
// order of declaration.
func (c *Command) Each(tell func(name, value string)) {
	for _, s := range c.settings {
		if flag := c.cobra.Flags().Lookup(s.name); flag != nil {
			tell(s.name, flag.Value.String())
		}
	}
}

// Sub declares a subcommand.
func (c *Command) Sub(name, short string, build func(*Command)) {
	sub := c.front.command(name, short)
	build(sub)
	c.cobra.AddCommand(sub.cobra)
}

// Run sets what the command does. A command without it prints its help and
// refuses unknown subcommands.
func (c *Command) Run(run RunFunc) {
	c.cobra.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.configure(); err != nil {
			return err
		}
		logger, err := newLogger(c.front.sys.Stderr, c.front.logFormat, c.front.logLevel)
		if err != nil {
			return err
		}
		if c.front.sys.Stderr == io.Writer(os.Stderr) {
			// Messages that libraries print may quote untrusted text.
			log.SetFlags(0)
			log.SetOutput(slog.NewLogLogger(logger.Handler(), slog.LevelDebug).Writer())
		}
		c.front.began = true
		stop, err := telemetry.Init(cmd.Context(), "fairlead-"+c.front.root.cobra.Name(), Revision(), logger)
		if err != nil { // no reason to stop
			logger.Warn("no traces", "err", err)
		}
		defer stop()
		return run(cmd.Context(), &Env{
			Logger:   logger,
			Stdin:    c.front.sys.Stdin,
			Stdout:   c.front.sys.Stdout,
			Revision: Revision(),
		})
	}
}
