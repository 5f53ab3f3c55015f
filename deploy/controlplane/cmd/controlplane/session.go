package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func sessions(c *program.Command) {
	c.Sub("create", "Make a session in a dashboard's sandbox, and print its id", createSession)
	c.Sub("delete", "End a session with all that runs in it", deleteSession)
	c.Sub("list", "List the sessions of a dashboard, those that have ended last", listSessions)
}

func createSession(c *program.Command) {
	var s sending
	var dashboard string
	s.common(c, `Make a session in the sandbox of a dashboard, in a user's name, and print its id.
The sandbox must be connected.`)
	c.String(&dashboard, "dashboard", "", "`id` or name of the dashboard")
	c.Require("dashboard")
	c.Run(func(ctx context.Context, env *program.Env) error {
		if err := s.at.find(ctx, aDashboard(&dashboard)); err != nil {
			return err
		}
		if err := s.at.use(ctx, func(st *store.Store) error {
			sandbox, err := st.Boards.SandboxOf(ctx, dashboard)
			if err == nil && sandbox == "" {
				err = fmt.Errorf("dashboard %s has no sandbox yet", dashboard)
			}
			s.sandbox = string(sandbox)
			return err
		}); err != nil {
			return err
		}
		op, err := json.Marshal(map[string]string{"kind": op.KindSessionCreate})
		if err != nil {
			return err
		}
		cmd, err := s.execute(ctx, env, op)
		if err != nil {
			return err
		}
		if err := outcomeError(cmd.Outcome); err != nil {
			return err
		}
		made := cmd.Envelope.Target
		if s.asJSON {
			return printJSON(env.Stdout, sessionJSON{ID: made.SessionID, State: store.StateActive, Dashboard: dashboard, Sandbox: made.SandboxID})
		}
		_, err = fmt.Fprintln(env.Stdout, made.SessionID)
		return err
	})
}

func deleteSession(c *program.Command) {
	var s sending
	s.flags(c, "End a session with all that runs in it, in a user's name, and print the outcome.")
	c.Require("session")
	c.Run(func(ctx context.Context, env *program.Env) error {
		op, err := json.Marshal(map[string]string{"kind": op.KindSessionDelete})
		if err != nil {
			return err
		}
		return s.send(ctx, env, op)
	})
}

type sessionJSON struct {
	ID        protocol.SessionID `json:"id"`
	State     string             `json:"state"`
	Dashboard string             `json:"dashboard"`
	Sandbox   protocol.SandboxID `json:"sandbox,omitempty"`
	CreatedAt *time.Time         `json:"created_at,omitempty"`
}

func listSessions(c *program.Command) {
	var at location
	var dashboard string
	var asJSON bool
	at.flags(c)
	c.String(&dashboard, "dashboard", "", "`id` or name of the dashboard")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Require("dashboard")
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.Session
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if err := find(ctx, st, aDashboard(&dashboard)); err != nil {
				return err
			}
			found, err = st.Sessions.SessionsOf(ctx, dashboard)
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "SESSION\tSTATE\tSANDBOX\tCREATED"}, []sessionJSON{}
		for _, s := range found {
			list.rows = append(list.rows, []string{string(s.ID), s.State, text(s.Sandbox), stamp(s.CreatedAt)})
			all = append(all, sessionJSON{s.ID, s.State, s.Dashboard, s.Sandbox, known(s.CreatedAt)})
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}
