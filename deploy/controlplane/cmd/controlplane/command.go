package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func commands(c *program.Command) {
	c.Sub("list", "List commands, the newest first", listCommands)
	c.Sub("show", "Show a command and what became of it", showCommand)
	c.Sub("send", "Have something done in a user's name, and print the outcome", sendCommand)
}

type commandJSON struct {
	ID         protocol.CommandID     `json:"id"`
	Kind       string                 `json:"kind"`
	Target     protocol.CommandTarget `json:"target"`
	User       protocol.UserID        `json:"user,omitempty"`
	Grant      protocol.GrantID       `json:"grant,omitempty"`
	Trace      protocol.TraceID       `json:"trace"`
	IssuedAt   time.Time              `json:"issued_at"`
	TTLMs      int64                  `json:"ttlMs"`
	Status     string                 `json:"status"`
	Result     json.RawMessage        `json:"result,omitempty"`
	Error      *protocol.ErrorBody    `json:"error,omitempty"`
	FinishedAt *time.Time             `json:"finished_at,omitempty"`
	Signed     bool                   `json:"signed"` // the outcome, by the executor
	Callbacks  int64                  `json:"callbacks,omitempty"`
	Late       int64                  `json:"late,omitempty"`
}

func newCommandJSON(cmd store.Command) commandJSON {
	env := cmd.Envelope
	return commandJSON{
		ID: env.CommandID, Kind: cmd.Kind, Target: env.Target, User: cmd.User, Grant: cmd.Grant, Trace: env.TraceID,
		IssuedAt: time.UnixMilli(env.IssuedAt).UTC(), TTLMs: env.TTLMs,
		Status: cmd.Outcome.Status, Result: cmd.Outcome.Result, Error: cmd.Outcome.Error,
		FinishedAt: known(cmd.FinishedAt), Signed: len(cmd.Outcome.Signature) > 0,
		Callbacks: cmd.Callbacks, Late: cmd.Late,
	}
}

func listCommands(c *program.Command) {
	var at location
	var filter store.CommandFilter
	var session, user, before string
	var asJSON bool
	at.flags(c)
	c.String(&session, "session", "", "only those of the session with this `id`, or of a dashboard's only one")
	c.String(&user, "user", "", "only those of the user with this `id`, address or name")
	c.String(&before, "before", "", "only those older than the command with this `id`")
	c.Int(&filter.Limit, "limit", store.DefaultLimit, "how many at most")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		filter.Session, filter.User, filter.Before = protocol.SessionID(session), protocol.UserID(user), protocol.CommandID(before)
		var found []store.Command
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if err := find(ctx, st, aSession(&filter.Session), aUser(&filter.User)); err != nil {
				return err
			}
			found, err = st.Commands.CommandsOf(ctx, filter)
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "COMMAND\tISSUED\tUSER\tSESSION\tKIND\tSTATUS\tERROR"}, []commandJSON{}
		for _, cmd := range found {
			j := newCommandJSON(cmd)
			reason := "-"
			if j.Error != nil {
				reason = j.Error.Name
			}
			list.rows = append(list.rows, []string{
				string(j.ID), stamp(j.IssuedAt), text(j.User), text(j.Target.SessionID), j.Kind, j.Status, reason,
			})
			all = append(all, j)
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func showCommand(c *program.Command) {
	var at location
	var id string
	var asJSON bool
	at.flags(c)
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Arg(&id, "COMMAND")
	c.Run(func(ctx context.Context, env *program.Env) error {
		var cmd store.Command
		if err := at.use(ctx, func(st *store.Store) (err error) {
			cmd, err = st.Commands.Command(ctx, protocol.CommandID(id))
			return err
		}); err != nil {
			return err
		}
		return printCommand(env.Stdout, newCommandJSON(cmd), asJSON)
	})
}

// printCommand prints one command, a line for each thing that is known of it.
func printCommand(w io.Writer, j commandJSON, asJSON bool) error {
	list := listing{header: "COMMAND\t" + string(j.ID), json: j}
	line := func(name, value string) {
		if value != "" {
			list.rows = append(list.rows, []string{name, value})
		}
	}
	line("KIND", j.Kind)
	line("SANDBOX", string(j.Target.SandboxID))
	line("SESSION", string(j.Target.SessionID))
	line("TERMINAL", string(j.Target.PTYID))
	line("EXTENSION", j.Target.ExtensionID)
	line("USER", string(j.User))
	line("GRANT", string(j.Grant))
	line("TRACE", string(j.Trace))
	line("ISSUED", stamp(j.IssuedAt))
	line("LIFE", (time.Duration(j.TTLMs) * time.Millisecond).String())
	line("STATUS", j.Status)
	if j.FinishedAt != nil {
		line("FINISHED", stamp(*j.FinishedAt))
	}
	line("RESULT", string(j.Result))
	if j.Error != nil {
		line("ERROR", strings.TrimPrefix(j.Error.Name+": ", ": ")+j.Error.Message)
	}
	if j.Callbacks > 0 {
		line("CALLBACKS", fmt.Sprintf("%d more, %d late", j.Callbacks, j.Late))
	}
	return list.print(w, asJSON)
}

// The exit statuses of command send beside 0, ok, and 1, not sent.
const (
	exitError       = 2
	exitUnknown     = 3
	exitUndelivered = 4
)

// A sending is how an operation is sent in a user's name, and what is printed of
// it.
type sending struct {
	at      location
	cfg     controlplane.SendConfig
	user    string
	sandbox string
	session string
	pty     string
	asJSON  bool
}

const statusUsage = `Exit status: 0 done, %d an error of whoever executed it, %d the outcome is not
known, %d nothing was done and it may be tried again, 1 anything else.`

// flags declares them, and what the help says before them.
func (s *sending) flags(c *program.Command, describe string) {
	s.common(c, describe)
	c.String(&s.session, "session", "", "`id` of the session, or of the dashboard whose only one it is; or that one's name")
}

// common declares those that need no session.
func (s *sending) common(c *program.Command, describe string) {
	c.Describe(describe + "\n\n" + fmt.Sprintf(statusUsage, exitError, exitUnknown, exitUndelivered))
	s.at.flags(c)
	c.String(&s.user, "user", "", "`id`, address or name of the user in whose name it is done")
	c.Duration(&s.cfg.TTL, "ttl", protocol.DefaultCommandTTL, "how long it may take to arrive")
	c.String(&s.cfg.Key, "key", "", "idempotency `key`: repeated, the same command is not done twice")
	c.Bool(&s.asJSON, "json", false, jsonUsage)
	c.Require("state-dir", "user")
}

func (s *sending) send(ctx context.Context, env *program.Env, op json.RawMessage) error {
	cmd, err := s.execute(ctx, env, op)
	if err != nil {
		return err
	}
	if err := printCommand(env.Stdout, newCommandJSON(cmd), s.asJSON); err != nil {
		return err
	}
	return outcomeError(cmd.Outcome)
}

// execute has op done and returns what became of it.
func (s *sending) execute(ctx context.Context, env *program.Env, op json.RawMessage) (cmd store.Command, err error) {
	s.cfg.StateDir, s.cfg.Database, s.cfg.Logger = s.at.StateDir, s.at.Database, env.Logger
	if err := s.at.find(ctx, aUser(&s.user), aSession(&s.session)); err != nil {
		return cmd, err
	}
	s.cfg.User, s.cfg.Op = protocol.UserID(s.user), op
	s.cfg.Target = protocol.CommandTarget{
		SandboxID: protocol.SandboxID(s.sandbox), SessionID: protocol.SessionID(s.session), PTYID: protocol.PTYID(s.pty),
	}
	return controlplane.Send(ctx, s.cfg)
}

func sendCommand(c *program.Command) {
	var s sending
	var op string
	s.flags(c, `Sign a command in a user's name, send it through the relays that are connected,
and print the outcome. OP is an operation, such as agent.pause, or a JSON object
with its members: {"kind":"pty.signal","signal":"INT"}. @FILE is an object in a
file, - one on standard input: what holds values of env.apply is taken in these
ways alone, since everybody on the machine can read a command line. The user can
do no more in this way than in the console.`)
	c.String(&s.pty, "pty", "", "`id` of the terminal")
	c.String(&s.sandbox, "sandbox", "", "`id` of the sandbox; session.create names nothing else")
	c.Arg(&op, "OP")
	c.Run(func(ctx context.Context, env *program.Env) error {
		data, err := operation(op, env.Stdin)
		if err != nil {
			return err
		}
		return s.send(ctx, env, data)
	})
}

// operation reads OP: an object, where there is one, or the kind of one without
// further members.
func operation(text string, stdin io.Reader) (json.RawMessage, error) {
	path, inFile := strings.CutPrefix(text, "@")
	switch {
	case text == "-":
		return readValue(stdin, "standard input")
	case inFile:
		return readFile(path)
	case strings.HasPrefix(strings.TrimSpace(text), "{"):
		var known struct {
			Kind    string          `json:"kind"`
			Secrets json.RawMessage `json:"secrets"`
		}
		// What can't be decoded is told of where it is checked.
		if json.Unmarshal([]byte(text), &known) == nil && known.Kind == op.KindEnvApply && known.Secrets != nil {
			return nil, program.Hint(errors.New("secrets on a command line can be read by everybody on this machine"),
				"give the object as @FILE or on standard input as -, or use \"env set\"")
		}
		return json.RawMessage(text), nil
	}
	return json.Marshal(op.Op{Kind: text})
}

func outcomeError(o store.Outcome) error {
	reason := ""
	if o.Error != nil {
		reason = ": " + o.Error.Message
	}
	switch o.Status {
	case protocol.StatusOK:
		return nil
	case protocol.StatusError:
		return program.WithStatus(errors.New("the command failed"+reason), exitError)
	case store.StatusUndelivered:
		return program.WithStatus(errors.New("the command was not delivered"+reason), exitUndelivered)
	}
	return program.WithStatus(errors.New("the outcome is not known"+reason), exitUnknown)
}
