package program

import (
	"fmt"

	"github.com/spf13/cobra"
)

// An argument is one word after the flags.
type argument struct {
	name  string
	value *string
}

// Arg declares a required word after the flags, shown as NAME in the help.
// Several are taken in the order of declaration.
func (c *Command) Arg(p *string, name string) {
	c.arguments = append(c.arguments, argument{name, p})
	c.cobra.Use += " " + name
	c.cobra.Args = func(_ *cobra.Command, words []string) error {
		for i, a := range c.arguments {
			if i >= len(words) || words[i] == "" {
				return Hint(fmt.Errorf("%s is missing", a.name), "--help shows what the command takes")
			}
			*a.value = words[i]
		}
		extra := words[len(c.arguments):]
		if c.rest != nil {
			*c.rest = extra
			return nil
		}
		if len(extra) > 0 {
			return fmt.Errorf("unexpected argument %q", extra[0])
		}
		return nil
	}
}

// Rest declares that any number of words may follow those of Arg, of which
// there must be one. They are taken literally, even with a leading dash.
func (c *Command) Rest(p *[]string, name string) {
	c.rest = p
	c.cobra.Use += " [" + name + "...]"
	c.cobra.Flags().SetInterspersed(false)
}

// Describe sets the help's text before the flags, instead of the short one.
func (c *Command) Describe(text string) { c.cobra.Long = text }

// A statusError makes the program exit with its status.
type statusError struct {
	error
	status int
}

func (s *statusError) Unwrap() error { return s.error }

// WithStatus returns err with the exit status that stands for it, 1 to 125.
// Errors without one exit with 1.
func WithStatus(err error, status int) error { return &statusError{err, status} }
