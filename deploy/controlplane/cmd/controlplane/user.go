package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func users(c *program.Command) {
	c.Describe(`Add, list and remove users, and make tokens for them.

A user who is added with an e-mail address may sign in at the provider with it.
A user with a token needs no provider.`)
	c.Sub("add", "Add a user, and print their id", addUser)
	c.Sub("list", "List users", listUsers)
	c.Sub("token", "Make a token that stands for a user, and print it", addToken)
	c.Sub("remove", "Remove a user with their tokens, memberships and grants", removeUser)
}

type userJSON struct {
	ID    protocol.UserID `json:"id"`
	Name  string          `json:"name"`
	Email string          `json:"email,omitempty"`
}

func addUser(c *program.Command) {
	var at location
	var user store.User
	var id string
	var asJSON bool
	at.flags(c)
	c.String(&user.Name, "name", "", "what others call them")
	c.String(&user.Email, "email", "", "`address` with which they may sign in, once the provider has verified it")
	c.String(&id, "id", "", "their `id`; empty: a new one")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Require("name")
	c.Run(func(ctx context.Context, env *program.Env) error {
		user.ID = protocol.UserID(id)
		if id == "" {
			user.ID = protocol.NewUserID()
		}
		if err := at.use(ctx, func(st *store.Store) error { return st.People.AddUser(ctx, user) }); err != nil {
			return err
		}
		if asJSON {
			return printJSON(env.Stdout, userJSON(user))
		}
		_, err := fmt.Fprintln(env.Stdout, user.ID)
		return err
	})
}

func listUsers(c *program.Command) {
	var at location
	var after string
	var limit int
	var asJSON bool
	at.flags(c)
	c.String(&after, "after", "", "only users whose ids follow this `id`")
	c.Int(&limit, "limit", store.DefaultLimit, "how many at most")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.User
		if err := at.use(ctx, func(st *store.Store) (err error) {
			found, err = st.People.Users(ctx, protocol.UserID(after), limit)
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "USER\tNAME\tE-MAIL"}, []userJSON{}
		for _, u := range found {
			list.rows = append(list.rows, []string{string(u.ID), u.Name, text(u.Email)})
			all = append(all, userJSON(u))
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func addToken(c *program.Command) {
	var at location
	var user, label string
	var life time.Duration
	at.flags(c)
	c.Describe(`Make a token that stands for a user, and print it. It is shown this once: only
its SHA-256 is kept. The console takes it behind /#token= of its address.`)
	c.String(&label, "label", "cli", "what the token is for")
	c.Duration(&life, "valid-for", 24*time.Hour, "how long it lasts; 0: until it is removed with its user")
	c.Arg(&user, "USER")
	c.Run(func(ctx context.Context, env *program.Env) error {
		if life < 0 {
			return fmt.Errorf("--valid-for %s is negative", life)
		}
		secret := make([]byte, 32)
		if _, err := rand.Read(secret); err != nil {
			return err
		}
		token := "ut_" + base64.RawURLEncoding.EncodeToString(secret)
		expires := time.Time{}
		if life > 0 {
			expires = time.Now().Add(life)
		}
		if err := at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aUser(&user)); err != nil {
				return err
			}
			return st.People.AddToken(ctx, protocol.UserID(user), token, label, expires)
		}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(env.Stdout, token)
		return err
	})
}

func removeUser(c *program.Command) {
	var at location
	var user string
	at.flags(c)
	c.Arg(&user, "USER")
	c.Run(func(ctx context.Context, env *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aUser(&user)); err != nil {
				return err
			}
			ownerless, err := st.People.RemoveUser(ctx, protocol.UserID(user))
			if err != nil {
				return err
			}
			if len(ownerless) > 0 {
				env.Logger.Warn("dashboards without an owner now", "dashboards", strings.Join(ownerless, " "))
			}
			_, err = st.Grants.RevokeGrantsOf(ctx, protocol.UserID(user), "", time.Now())
			return err
		})
	})
}
