package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func environment(c *program.Command) {
	c.Describe(`Set and unset variables and secrets of a session, or of one of its terminals.
Values are sealed to the sandbox's key at once: neither the database nor a relay
can read them, and "command show" doesn't tell them. What is set in a session is
listed by the sandbox alone: GET /sessions/{sid}/env at a relay, which tells
names and no values, and the console.`)
	c.Sub("set", "Set variables and secrets", setEnvironment)
	c.Sub("unset", "Unset variables and secrets", unsetEnvironment)
}

func setEnvironment(c *program.Command) {
	var s sending
	var plain, secrets, brokered, domains []string
	var now bool
	s.flags(c, `Set variables and secrets of a session, or of the terminal --pty.

  env set … --secret OPENAI_API_KEY=@key.txt --brokered OPENAI_API_KEY
  pass show github | env set … --secret GITHUB_TOKEN=- --now
  env set … --var EDITOR=vim --var CONFIG=@config.json

A secret is read from a file or, once, from standard input, never from the
command line; one end of line at its end doesn't belong to it. It has 8 bytes at
least, and whatever terminals print of it is masked. A brokered secret stays out
of terminals: they get a placeholder, and the sandbox's broker puts the value
into the requests that may carry it.`)
	c.String(&s.pty, "pty", "", "`id` of the terminal that it is for alone")
	c.Texts(&plain, "var", "NAME=VALUE or NAME=@FILE: a variable that anybody may see")
	c.Texts(&secrets, "secret", "NAME=@FILE, or NAME=- for standard input: a secret")
	c.Strings(&brokered, "brokered", "names of those secrets that only the broker gets")
	c.Texts(&domains, "domain", "NAME=HOST: the broker may send this secret there, as a bearer token")
	c.Bool(&now, "now", false, "in running shells too, before their next prompt; else in new terminals alone")
	c.Require("session")
	c.Run(func(ctx context.Context, env *program.Env) error {
		apply := op.EnvApply{ApplyNow: now}
		values := valueReader{stdin: env.Stdin}
		if err := errors.Join(
			values.plain(&apply, plain), values.secrets(&apply, secrets, brokered), approve(&apply, domains),
		); err != nil {
			return err
		}
		data, err := json.Marshal(op.Op{Kind: op.KindEnvApply, Body: &apply})
		if err != nil {
			return err
		}
		return s.send(ctx, env, data)
	})
}

func unsetEnvironment(c *program.Command) {
	var s sending
	var names string
	var now bool
	s.flags(c, `Unset the variables and secrets NAMES, separated by commas, of a session or of
the terminal --pty.`)
	c.String(&s.pty, "pty", "", "`id` of the terminal that it is for alone")
	c.Bool(&now, "now", false, "in running shells too, before their next prompt; else in new terminals alone")
	c.Require("session")
	c.Arg(&names, "NAMES")
	c.Run(func(ctx context.Context, env *program.Env) error {
		data, err := json.Marshal(op.Op{Kind: op.KindEnvApply, Body: &op.EnvApply{
			Unset: strings.Split(names, ","), ApplyNow: now,
		}})
		if err != nil {
			return err
		}
		return s.send(ctx, env, data)
	})
}

// A valueReader reads what flags say of variables.
type valueReader struct {
	stdin io.Reader // nil: it was read
}

// assignment splits NAME=VALUE. Its errors quote nothing that may be a value.
func assignment(flag, text, want string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return "", "", fmt.Errorf("--%s: want %s", flag, want)
	}
	return name, value, protocol.CheckEnvName(name)
}

func (r *valueReader) plain(op *op.EnvApply, texts []string) error {
	for _, text := range texts {
		name, value, err := assignment("var", text, "NAME=VALUE or NAME=@FILE")
		if err != nil {
			return err
		}
		if path, inFile := strings.CutPrefix(value, "@"); inFile {
			if value, err = readText(path); err != nil {
				return err
			}
		}
		if _, twice := op.Set[name]; twice {
			return fmt.Errorf("--var %s is given twice", name)
		}
		if op.Set == nil {
			op.Set = make(map[string]string)
		}
		op.Set[name] = value
	}
	return nil
}

func (r *valueReader) secrets(op *op.EnvApply, texts, brokered []string) error {
	for _, text := range texts {
		name, from, err := assignment("secret", text, "NAME=@FILE or NAME=-")
		if err != nil {
			return err
		}
		var value string
		path, inFile := strings.CutPrefix(from, "@")
		switch {
		case inFile:
			value, err = readText(path)
		case from != "-":
			err = program.Hint(fmt.Errorf("--secret %s: want @FILE or - after the =", name),
				"everybody on this machine can read a command line; if it was a real secret, replace it")
		case r.stdin == nil:
			err = fmt.Errorf("--secret %s: standard input holds one secret, and it is another's", name)
		default:
			var data []byte
			data, err = readValue(r.stdin, "standard input")
			value, r.stdin = withoutEndOfLine(data), nil
		}
		if err != nil {
			return err
		}
		if _, twice := op.Secrets[name]; twice {
			return fmt.Errorf("--secret %s is given twice", name)
		}
		if op.Secrets == nil {
			op.Secrets = make(map[string]protocol.EnvSecret)
		}
		op.Secrets[name] = protocol.EnvSecret{Value: value, BrokerProtected: slices.Contains(brokered, name)}
	}
	for _, name := range brokered {
		if _, given := op.Secrets[name]; !given {
			return fmt.Errorf("--brokered %.40q: there is no --secret of that name", name)
		}
	}
	return nil
}

// approve adds the domains that secrets may be sent to.
func approve(op *op.EnvApply, texts []string) error {
	for _, text := range texts {
		name, host, err := assignment("domain", text, "NAME=HOST")
		if err != nil {
			return err
		}
		op.ApprovedDomains = append(op.ApprovedDomains, protocol.ApprovedDomain{Secret: name, Domain: host})
	}
	return nil
}

// readText reads a value from a file.
func readText(path string) (string, error) {
	data, err := readFile(path)
	return withoutEndOfLine(data), err
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readValue(f, path)
}

// readValue reads what an operation can hold at most.
func readValue(from io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, protocol.MaxTokenBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) == 0 || len(data) > protocol.MaxTokenBytes {
		return nil, fmt.Errorf("%s: want 1 to %d bytes", name, protocol.MaxTokenBytes)
	}
	return data, nil
}

func withoutEndOfLine(data []byte) string {
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
}
