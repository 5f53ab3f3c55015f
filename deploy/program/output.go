package program

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"
	"unicode"
)

// revision is set by the linker (-X) only.
var revision string

// Revision names the build: what the linker was told, else the commit that the
// Go tool recorded, else the module's version.
func Revision() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	switch {
	case commit != "":
		return commit[:min(12, len(commit))] + modified
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	return "unknown"
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	switch level {
	case "debug":
		opts.Level = slog.LevelDebug
	case "info":
		opts.Level = slog.LevelInfo
	case "warn":
		opts.Level = slog.LevelWarn
	case "error":
		opts.Level = slog.LevelError
	default:
		return nil, fmt.Errorf("log-level %q: want debug, info, warn or error", level)
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, fmt.Errorf("log-format %q: want text or json", format)
}

// A hinted error carries advice for its reader.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint adds advice to err, which [Main] prints on a line of its own.
func Hint(err error, advice string) error { return &hinted{err, advice} }

func printError(w io.Writer, name string, err error) {
	fmt.Fprintf(w, "%s: error: %s\n", name, oneLine(err.Error()))
	if h, ok := errors.AsType[*hinted](err); ok {
		fmt.Fprintf(w, "%s: hint: %s\n", name, oneLine(h.hint))
	}
}

// oneLine makes a message safe to print as one line: an error may quote
// untrusted text.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.Join(lines, "; "))
}
