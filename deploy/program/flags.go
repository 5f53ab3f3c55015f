package program

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

const envPrefix = "FAIRLEAD_"

// A setting is one flag with its environment variable and configuration key.
type setting struct {
	name   string
	secret *secret // the flag names a file that holds it
}

// A secret comes from a file, or from an environment variable.
type secret struct {
	name  string
	path  string
	value *string
}

func (c *Command) add(name string) { c.settings = append(c.settings, &setting{name: name}) }

// String declares a flag that holds text. As in pflag, a `quoted` word of the
// usage names its value.
func (c *Command) String(p *string, name, value, usage string) {
	c.cobra.Flags().StringVar(p, name, value, usage)
	c.add(name)
}

// Bool declares a flag that is true or false.
func (c *Command) Bool(p *bool, name string, value bool, usage string) {
	c.cobra.Flags().BoolVar(p, name, value, usage)
	c.add(name)
}

// Int declares a flag that holds a whole number.
func (c *Command) Int(p *int, name string, value int, usage string) {
	c.cobra.Flags().IntVar(p, name, value, usage)
	c.add(name)
}

// Float declares a flag that holds a number.
func (c *Command) Float(p *float64, name string, value float64, usage string) {
	c.cobra.Flags().Float64Var(p, name, value, usage)
	c.add(name)
}

// Duration declares a flag that holds a time such as 1m30s.
func (c *Command) Duration(p *time.Duration, name string, value time.Duration, usage string) {
	c.cobra.Flags().DurationVar(p, name, value, usage)
	c.add(name)
}

// Strings declares a repeatable flag whose values may be several, separated by
// commas. In a configuration file it is a list or one text.
func (c *Command) Strings(p *[]string, name, usage string) {
	c.cobra.Flags().Var(&list{values: p}, name, usage)
	c.add(name)
}

// Texts declares a repeatable flag whose values are taken literally. In a
// configuration file it is a list or one text.
func (c *Command) Texts(p *[]string, name, usage string) {
	c.cobra.Flags().Var(&list{values: p, whole: true}, name, usage)
	c.add(name)
}

// Secret declares a secret. Its value is never on a command line or in a
// configuration file: --NAME-file (FAIRLEAD_NAME_FILE, key NAME-file) names a
// file that holds it, or the variable FAIRLEAD_NAME is the value. A final
// newline in the file is dropped. If only some values are secret, a String flag
// NAME for the same variable may be declared before it.
func (c *Command) Secret(p *string, name, usage string) {
	s := &secret{name: name, value: p}
	c.cobra.Flags().StringVar(&s.path, name+"-file", "", "`file` that holds "+usage)
	c.settings = append(c.settings, &setting{name: name + "-file", secret: s})
}

// Require makes the command fail unless the named flags have a value. A secret
// is named without "-file".
func (c *Command) Require(names ...string) { c.required = append(c.required, names...) }

// configure sets flags that aren't on the command line from the environment or
// the configuration file.
func (c *Command) configure() error {
	f := c.front
	if v, ok := f.env("config"); ok && !c.cobra.Flags().Changed("config") {
		f.config = v
	}
	file, err := readConfig(f.config, f.commands)
	if err != nil {
		return err
	}
	for _, s := range slices.Concat(f.common, c.settings) {
		if err := c.resolve(s, file); err != nil {
			return err
		}
	}
	return c.checkRequired()
}

func (c *Command) resolve(s *setting, file *configFile) error {
	flag := c.cobra.Flags().Lookup(s.name)
	fromFile := func() error {
		if s.secret == nil {
			return nil
		}
		return s.secret.read()
	}
	if s.secret != nil {
		switch plain := c.cobra.Flags().Lookup(s.secret.name); {
		case plain == nil || !plain.Changed:
		case flag.Changed:
			return fmt.Errorf("both --%s and --%s are set", s.secret.name, s.name)
		default:
			return nil
		}
	}
	if flag.Changed {
		return fromFile()
	}
	value, ok := c.front.env(s.name)
	if s.secret != nil {
		direct, given := c.front.env(s.secret.name)
		switch {
		case given && ok:
			return fmt.Errorf("both %s and %s are set", envName(s.secret.name), envName(s.name))
		case given:
			*s.secret.value = direct
			return nil
		}
	}
	if ok {
		if err := flag.Value.Set(value); err != nil {
			return fmt.Errorf("%s: %w", envName(s.name), err)
		}
		return fromFile()
	}
	for _, v := range file.values[s.name] {
		if err := flag.Value.Set(v.text); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", file.path, v.line, s.name, err)
		}
	}
	return fromFile()
}

func (c *Command) checkRequired() error {
	for _, name := range c.required {
		flag, value := name, ""
		if f := c.cobra.Flags().Lookup(name); f != nil {
			value = f.Value.String()
		}
		for _, s := range c.settings {
			if s.secret != nil && s.secret.name == name {
				flag, value = s.name, *s.secret.value
			}
		}
		if value == "" {
			return Hint(fmt.Errorf("--%s is required", flag),
				"it can also be set as "+envName(flag)+" or as "+flag+" in the --config file")
		}
	}
	return nil
}

// env returns the variable of the flag name. An empty one counts as unset,
// since container files pass on missing values so.
func (f *front) env(name string) (string, bool) {
	v, ok := f.sys.LookupEnv(envName(name))
	return v, ok && v != ""
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const maxSecretBytes = 64 << 10

func (s *secret) read() error {
	if s.path == "" {
		return nil
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	value := strings.TrimRight(string(data), "\r\n")
	if value == "" || len(value) > maxSecretBytes {
		return fmt.Errorf("%s: %s holds %d bytes, want 1 to %d", s.name, s.path, len(value), maxSecretBytes)
	}
	*s.value = value
	return nil
}

// A list is the value of a flag that may be repeated.
type list struct {
	values *[]string
	whole  bool // commas don't separate values
}

func (l *list) String() string {
	if l.values == nil {
		return ""
	}
	return strings.Join(*l.values, ",")
}

func (l *list) Type() string { return "list" }

func (l *list) Set(text string) error {
	if l.whole {
		*l.values = append(*l.values, text)
		return nil
	}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			return fmt.Errorf("empty item in %q", text)
		}
		*l.values = append(*l.values, item)
	}
	return nil
}
