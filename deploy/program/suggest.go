package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noWords refuses words after a command that takes none. It treats them as
// unknown subcommands.
func noWords(c *cobra.Command, words []string) error {
	if len(words) == 0 {
		return nil
	}
	return unknownCommand(c, words[0])
}

// unknownCommand says that c has no such subcommand, and suggests one.
func unknownCommand(c *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q for %q", name, c.CommandPath())
	names := subcommands(c)
	if len(names) == 0 {
		return err
	}
	hint := "there are " + strings.Join(names, ", ")
	if meant := nearest(name, names); meant != "" {
		hint = fmt.Sprintf("did you mean %q? %s", meant, hint)
	}
	return Hint(err, hint)
}

// likelyFlag suggests a flag for an unknown one.
func likelyFlag(c *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	var names []string
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	if meant := nearest(unknown.GetSpecifiedName(), names); meant != "" {
		return fmt.Sprintf("did you mean --%s? ", meant)
	}
	return ""
}

// nearest returns the name that word probably means: one that begins with it,
// or differs in few letters; empty for none.
func nearest(word string, names []string) (found string) {
	word = strings.ToLower(word)
	least := 1 + max(1, len(word)/3) // beyond this it is another word
	for _, name := range names {
		edits := distance(word, name)
		if len(word) >= 2 && strings.HasPrefix(name, word) {
			edits = 0
		}
		if edits < least {
			least, found = edits, name
		}
	}
	return found
}

// distance counts the letters in which two words differ: added, removed,
// replaced, or swapped with their neighbour.
func distance(a, b string) int {
	before, row := []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
