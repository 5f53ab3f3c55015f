package main

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func sessions(c *program.Command) {
	c.Sub("list", "List the sessions of a dashboard, those that have ended last", listSessions)
}

type sessionJSON struct {
	ID        protocol.SessionID `json:"id"`
	State     string             `json:"state"`
	Dashboard string             `json:"dashboard"`
	Sandbox   protocol.SandboxID `json:"sandbox,omitempty"`
	CreatedAt *time.Time         `json:"created_at,omitempty"`
}

func listSessions(c *program.Command) {
	var at place
	var dashboard string
	var asJSON bool
	at.flags(c)
	c.String(&dashboard, "dashboard", "", "`id` of the dashboard")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Require("dashboard")
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.Session
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if err := knownDashboard(ctx, st, dashboard); err != nil {
				return err
			}
			found, err = st.SessionsOf(ctx, dashboard)
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
