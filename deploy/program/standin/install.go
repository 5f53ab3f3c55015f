package standin

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Install writes an executable shell script for each of the [Programs] into dir,
// with that program's name. It runs program with args, the name, and the
// arguments that it was given itself. Everybody may run the scripts; whether
// everybody may run program is up to its folder.
func Install(dir, program string, args ...string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	words := []string{quote(program)}
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	for _, name := range Programs() {
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", strings.Join(words, " "), name)
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o755); err != nil { // whatever the umask is
			return err
		}
	}
	return nil
}

// quote writes s as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
