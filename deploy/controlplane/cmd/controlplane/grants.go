package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func grants(c *program.Command) {
	c.Sub("list", "List grants, the newest first", listGrants)
	c.Sub("revoke", "Void a grant: open sockets close within a second", revokeGrant)
	c.Sub("revoke-user", "Void all grants of a user", revokeUser)
}

type grantJSON struct {
	ID           protocol.GrantID   `json:"id"`
	User         protocol.UserID    `json:"user"`
	Session      protocol.SessionID `json:"session"`
	PTY          protocol.PTYID     `json:"pty,omitempty"`
	Capabilities string             `json:"capabilities"`
	IssuedAt     time.Time          `json:"issued_at"`
	ExpiresAt    time.Time          `json:"expires_at"`
	RevokedAt    *time.Time         `json:"revoked_at,omitempty"`
}

func listGrants(c *program.Command) {
	var at location
	var user, session string
	var filter store.GrantFilter
	var all, asJSON bool
	at.flags(c)
	c.String(&user, "user", "", "`id`, address or name of the user who holds them")
	c.String(&session, "session", "", "`id` of the session they are for, or of the dashboard whose only one it is")
	c.String(&filter.Dashboard, "dashboard", "", "`id` or name of the dashboard they are for")
	c.Int(&filter.Limit, "limit", store.DefaultLimit, "how many at most")
	c.Bool(&all, "all", false, "those that have expired or were revoked too")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		filter.User, filter.Session = protocol.UserID(user), protocol.SessionID(session)
		if !all {
			filter.Live = time.Now()
		}
		var found []store.Grant
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if err := find(ctx, st, aUser(&filter.User), aSession(&filter.Session), aDashboard(&filter.Dashboard)); err != nil {
				return err
			}
			found, err = st.Grants.List(ctx, filter)
			return err
		}); err != nil {
			return err
		}
		return grantListing(found).print(env.Stdout, asJSON)
	})
}

func grantListing(found []store.Grant) listing {
	list := listing{header: "GRANT\tUSER\tSESSION\tTERMINAL\tEXPIRES\tREVOKED\tCAPABILITIES"}
	all := []grantJSON{}
	for _, g := range found {
		list.rows = append(list.rows, []string{
			string(g.ID), string(g.User), string(g.Session), text(g.PTY), stamp(g.ExpiresAt), stamp(g.RevokedAt), g.Capabilities,
		})
		all = append(all, grantJSON{
			ID: g.ID, User: g.User, Session: g.Session, PTY: g.PTY, Capabilities: g.Capabilities,
			IssuedAt: g.IssuedAt, ExpiresAt: g.ExpiresAt, RevokedAt: known(g.RevokedAt),
		})
	}
	list.json = all
	return list
}

func revokeGrant(c *program.Command) {
	var at location
	var id string
	at.flags(c)
	c.Arg(&id, "GRANT")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			return st.Grants.RevokeGrant(ctx, protocol.GrantID(id), time.Now())
		})
	})
}

func revokeUser(c *program.Command) {
	var at location
	var user, dashboard string
	at.flags(c)
	c.String(&dashboard, "dashboard", "", "`id` or name of the dashboard; empty: every one")
	c.Arg(&user, "USER")
	c.Run(func(ctx context.Context, env *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aUser(&user), aDashboard(&dashboard)); err != nil {
				return err
			}
			ids, err := st.Grants.RevokeGrantsOf(ctx, protocol.UserID(user), dashboard, time.Now())
			if err == nil {
				fmt.Fprintf(env.Stdout, "%d grants revoked\n", len(ids))
			}
			return err
		})
	})
}
