package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func dashboards(c *program.Command) {
	c.Sub("add", "Add a dashboard, and print its id", addDashboard)
	c.Sub("list", "List dashboards", listDashboards)
	c.Sub("member", "Add, change, list and remove members", members)
	c.Sub("usage", "Show what was done in a dashboard, by day and user", showUsage)
	c.Sub("remove", "Remove a dashboard with its items, and end its sessions", removeDashboard)
}

type dashboardJSON struct {
	ID        string             `json:"id"`
	Name      string             `json:"name"`
	Sandbox   protocol.SandboxID `json:"sandbox,omitempty"`
	CreatedAt *time.Time         `json:"created_at,omitempty"`
}

func addDashboard(c *program.Command) {
	var at location
	var d store.Dashboard
	var owner, sandbox string
	at.flags(c)
	c.String(&d.ID, "id", "", "its `id`; empty: a new one")
	c.String(&d.Name, "name", "", "what people call it")
	c.String(&owner, "owner", "", "`id`, address or name of the user to whom it belongs")
	c.String(&sandbox, "sandbox", "", "`id` of its sandbox; empty: none until one is invited")
	c.Require("name", "owner")
	c.Run(func(ctx context.Context, env *program.Env) error {
		if d.ID == "" {
			d.ID = "dash_" + strings.ToLower(rand.Text())
		}
		d.Sandbox = protocol.SandboxID(sandbox)
		if err := at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aUser(&owner)); err != nil {
				return err
			}
			return st.Boards.AddDashboard(ctx, d, protocol.UserID(owner))
		}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(env.Stdout, d.ID)
		return err
	})
}

func listDashboards(c *program.Command) {
	var at location
	var user, after string
	var limit int
	var asJSON bool
	at.flags(c)
	c.String(&user, "user", "", "only those of the user with this `id`, address or name")
	c.String(&after, "after", "", "only those whose ids follow this `id`")
	c.Int(&limit, "limit", store.DefaultLimit, "how many at most")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.Dashboard
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if user == "" {
				found, err = st.Boards.AllDashboards(ctx, after, limit)
				return err
			}
			if err := find(ctx, st, aUser(&user)); err != nil {
				return err
			}
			mine, err := st.Boards.Dashboards(ctx, protocol.UserID(user))
			for _, m := range mine {
				found = append(found, m.Dashboard)
			}
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "DASHBOARD\tNAME\tSANDBOX\tCREATED"}, []dashboardJSON{}
		for _, d := range found {
			list.rows = append(list.rows, []string{d.ID, text(d.Name), text(d.Sandbox), stamp(d.CreatedAt)})
			all = append(all, dashboardJSON{d.ID, d.Name, d.Sandbox, known(d.CreatedAt)})
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func removeDashboard(c *program.Command) {
	var at location
	var id string
	at.flags(c)
	c.Arg(&id, "DASHBOARD")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aDashboard(&id)); err != nil {
				return err
			}
			if err := st.Boards.RemoveDashboard(ctx, id); err != nil {
				return err
			}
			holders, err := st.Grants.GrantHolders(ctx, id, time.Now())
			if err != nil {
				return err
			}
			for _, user := range holders {
				if _, err := st.Grants.RevokeGrantsOf(ctx, user, id, time.Now()); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func members(c *program.Command) {
	c.Sub("list", "List the members of a dashboard, and who was asked to be one", listMembers)
	c.Sub("set", "Add a member without asking them, or change what they may do", setMember)
	c.Sub("remove", "Remove a member and revoke their grants, or take an invitation back", removeMember)
}

type memberJSON struct {
	User         protocol.UserID `json:"user"`
	Name         string          `json:"name"`
	Role         store.Role      `json:"role"`
	Capabilities string          `json:"capabilities,omitempty"` // absent: all of the role
	State        string          `json:"state"`                  // accepted or invited
}

func listMembers(c *program.Command) {
	var at location
	var id string
	var asJSON bool
	at.flags(c)
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Arg(&id, "DASHBOARD")
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.Member
		var invited []store.MemberInvitation
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if err := find(ctx, st, aDashboard(&id)); err != nil {
				return err
			}
			if found, err = st.Boards.Members(ctx, id); err != nil {
				return err
			}
			invited, err = st.Boards.InvitedTo(ctx, id)
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "USER\tNAME\tROLE\tONLY\tSTATE"}, []memberJSON{}
		add := func(m store.Member, state string) {
			list.rows = append(list.rows, []string{string(m.User), m.Name, string(m.Role), text(m.Capabilities), state})
			all = append(all, memberJSON{m.User, m.Name, m.Role, m.Capabilities, state})
		}
		for _, m := range found {
			add(m, store.MemberAccepted)
		}
		for _, i := range invited {
			add(i.Member, store.MemberInvited)
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func setMember(c *program.Command) {
	var at location
	var dashboard, user, role string
	var only []string
	at.flags(c)
	c.String(&role, "role", "", "owner, editor or viewer")
	c.Strings(&only, "only", "the capabilities, of those of the role, that the member has; absent: all")
	c.Arg(&dashboard, "DASHBOARD")
	c.Arg(&user, "USER")
	c.Require("role")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		if r := store.Role(role); r == store.RoleOwner && len(only) > 0 {
			return fmt.Errorf("an owner's capabilities can't be narrowed")
		}
		return at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aDashboard(&dashboard), aUser(&user)); err != nil {
				return err
			}
			id := protocol.UserID(user)
			if err := st.Boards.SetMember(ctx, dashboard, id, store.Role(role), strings.Join(only, " ")); err != nil {
				return err
			}
			if store.Role(role) == store.RoleViewer {
				if _, err := st.Integrations.DetachAll(ctx, id, dashboard); err != nil {
					return err
				}
			}
			// Whether anything was lost isn't worth the question: who still may asks anew.
			_, err := st.Grants.RevokeGrantsOf(ctx, id, dashboard, time.Now())
			return err
		})
	})
}

func removeMember(c *program.Command) {
	var at location
	var dashboard, user string
	at.flags(c)
	c.Arg(&dashboard, "DASHBOARD")
	c.Arg(&user, "USER")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			if err := find(ctx, st, aDashboard(&dashboard), aUser(&user)); err != nil {
				return err
			}
			id := protocol.UserID(user)
			if err := st.Boards.RemoveMember(ctx, dashboard, id); err != nil {
				return err
			}
			if _, err := st.Integrations.DetachAll(ctx, id, dashboard); err != nil {
				return err
			}
			_, err := st.Grants.RevokeGrantsOf(ctx, id, dashboard, time.Now())
			return err
		})
	})
}

type usageJSON struct {
	Day    string           `json:"day"`
	User   protocol.UserID  `json:"user"`
	Counts map[string]int64 `json:"counts"`
}

func showUsage(c *program.Command) {
	var at location
	var dashboard, from, to string
	var asJSON bool
	at.flags(c)
	today := time.Now().UTC()
	c.String(&dashboard, "dashboard", "", "its `id` or name; empty: what belongs to none, such as sign-ins")
	c.String(&from, "from", today.AddDate(0, 0, -29).Format(time.DateOnly), "first `day`, UTC")
	c.String(&to, "to", today.Format(time.DateOnly), "last `day`, UTC")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.Usage
		if err := at.use(ctx, func(st *store.Store) (err error) {
			if err := find(ctx, st, aDashboard(&dashboard)); err != nil {
				return err
			}
			found, err = st.Usage.In(ctx, dashboard, from, to)
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "DAY\tUSER\tCOUNTER\tCOUNT"}, []usageJSON{}
		for _, u := range found {
			for _, counter := range slices.Sorted(maps.Keys(u.Counts)) {
				list.rows = append(list.rows, []string{u.Day, string(u.User), counter, fmt.Sprint(u.Counts[counter])})
			}
			all = append(all, usageJSON{u.Day, u.User, u.Counts})
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}
