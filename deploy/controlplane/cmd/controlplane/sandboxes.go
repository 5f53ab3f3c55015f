package main

import (
	"context"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func sandboxes(c *program.Command) {
	c.Sub("list", "List the sandboxes", listSandboxes)
	c.Sub("revoke", "Take its key from a sandbox: its certificates are void", revokeSandbox)
}

type sandboxJSON struct {
	ID         protocol.SandboxID  `json:"id"`
	Dashboard  string              `json:"dashboard,omitempty"`
	Device     string              `json:"device,omitempty"` // thumbprint
	EnrolledAt *time.Time          `json:"enrolled_at,omitempty"`
	RevokedAt  *time.Time          `json:"revoked_at,omitempty"`
	AuditHead  *protocol.AuditHead `json:"audit_head,omitempty"`
}

func listSandboxes(c *program.Command) {
	var at location
	var asJSON bool
	at.flags(c)
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		list := listing{header: "SANDBOX\tDASHBOARD\tENROLLED\tREVOKED\tAUDITED"}
		all := []sandboxJSON{}
		err := at.use(ctx, func(st *store.Store) error {
			after := protocol.SandboxID("")
			for {
				page, err := st.Fleet.Sandboxes(ctx, after, store.MaxLimit)
				if err != nil || len(page) == 0 {
					return err
				}
				for _, b := range page {
					list.rows = append(list.rows, sandboxRow(b))
					all = append(all, sandboxAsJSON(b))
				}
				after = page[len(page)-1].ID
			}
		})
		if err != nil {
			return err
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func sandboxRow(b store.Sandbox) []string {
	audited := "-"
	if b.Head.Sequence > 0 {
		audited = strconv.FormatUint(b.Head.Sequence, 10)
	}
	return []string{string(b.ID), text(b.Dashboard), stamp(b.EnrolledAt), stamp(b.RevokedAt), audited}
}

func sandboxAsJSON(b store.Sandbox) sandboxJSON {
	j := sandboxJSON{
		ID: b.ID, Dashboard: b.Dashboard, Device: b.DeviceKey,
		EnrolledAt: known(b.EnrolledAt), RevokedAt: known(b.RevokedAt),
	}
	if b.Head.Sequence > 0 {
		j.AuditHead = &b.Head.AuditHead
	}
	return j
}

func revokeSandbox(c *program.Command) {
	var at location
	var id string
	at.flags(c)
	c.Arg(&id, "SANDBOX")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		return at.use(ctx, func(st *store.Store) error {
			return st.Fleet.RevokeSandbox(ctx, protocol.SandboxID(id), time.Now())
		})
	})
}
