package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func accounts(c *program.Command) {
	c.Sub("list", "List the connected accounts, or what is attached in a dashboard", listIntegrations)
	c.Sub("policy", "Print a policy as it was when a record names it", showPolicy)
}

func showPolicy(c *program.Command) {
	var at location
	var id string
	var version int
	at.flags(c)
	c.Int(&version, "version", 1, "which version of the policy")
	c.Arg(&id, "POLICY")
	c.Run(func(ctx context.Context, env *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			body, err := st.Integrations.PolicyAt(ctx, id, int64(version))
			if err == nil {
				fmt.Fprintf(env.Stdout, "%s\n", body)
			}
			return err
		})
	})
}

type accountJSON struct {
	ID        string          `json:"id"`
	User      protocol.UserID `json:"user"`
	Provider  string          `json:"provider"`
	Name      string          `json:"name"`
	VaultKey  string          `json:"vault_key"`
	Connected time.Time       `json:"connected_at"`
	FailedAt  *time.Time      `json:"failed_at,omitempty"`
}

type attachmentJSON struct {
	Session  protocol.SessionID `json:"session"`
	PTY      protocol.PTYID     `json:"pty"`
	Provider string             `json:"provider"`
	Account  string             `json:"account"`
	Name     string             `json:"name"`
	User     protocol.UserID    `json:"user"`
	Policy   string             `json:"policy"`
	Version  int64              `json:"policy_version"`
}

func listIntegrations(c *program.Command) {
	var at location
	var dashboard string
	var asJSON bool
	at.flags(c)
	c.String(&dashboard, "dashboard", "", "`id` or name of a dashboard: what is attached there")
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		var list listing
		err := at.use(ctx, func(st *store.Store) (err error) {
			if err := find(ctx, st, aDashboard(&dashboard)); err != nil {
				return err
			}
			if dashboard != "" {
				list, err = attachmentListing(ctx, st, dashboard)
			} else {
				list, err = accountListing(ctx, st)
			}
			return err
		})
		if err != nil {
			return err
		}
		return list.print(env.Stdout, asJSON)
	})
}

func accountListing(ctx context.Context, st *store.Store) (listing, error) {
	list := listing{header: "ACCOUNT\tUSER\tPROVIDER\tNAME\tKEY\tCONNECTED\tFAILED"}
	all := []accountJSON{}
	after := ""
	for {
		page, err := st.Integrations.AllAccounts(ctx, after, store.MaxLimit)
		if err != nil {
			return list, err
		}
		if len(page) == 0 {
			list.json = all
			return list, nil
		}
		for _, a := range page {
			list.rows = append(list.rows, []string{
				a.ID, string(a.User), a.Provider, a.Name, a.KeyID, stamp(a.CreatedAt), stamp(a.FailedAt),
			})
			all = append(all, accountJSON{a.ID, a.User, a.Provider, a.Name, a.KeyID, a.CreatedAt.UTC(), known(a.FailedAt)})
		}
		after = page[len(page)-1].ID
	}
}

func attachmentListing(ctx context.Context, st *store.Store, dashboard string) (listing, error) {
	list := listing{header: "SESSION\tTERMINAL\tPROVIDER\tACCOUNT\tNAME\tUSER\tPOLICY"}
	all := []attachmentJSON{}
	attached, err := st.Integrations.AttachmentsIn(ctx, dashboard)
	for _, t := range attached {
		list.rows = append(list.rows, []string{
			string(t.Session), string(t.PTY), t.Provider, t.Account, t.AccountName, string(t.AccountUser), string(t.Policy),
		})
		all = append(all, attachmentJSON{
			t.Session, t.PTY, t.Provider, t.Account, t.AccountName, t.AccountUser, t.PolicyID, t.PolicyVersion,
		})
	}
	list.json = all
	return list, err
}
