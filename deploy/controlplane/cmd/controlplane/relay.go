package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

func relays(c *program.Command) {
	c.Describe(`Add, list and remove relays, and change their credentials.

A relay shows its credential (--credential-file) to register and to have commands
signed. The credential says which relay it is. It is shown once: only its SHA-256
is kept.`)
	c.Sub("add", "Add a relay, and print its credential", addRelay)
	c.Sub("list", "List the relays, and where they registered", listRelays)
	c.Sub("rotate", "Give a relay another credential, and print that: the one before is void", rotateRelay)
	c.Sub("remove", "Remove a relay: its credential is void", removeRelay)
}

// A credentialOut is where a new credential goes.
type credentialOut struct {
	file   string
	asJSON bool
}

func (o *credentialOut) flags(c *program.Command) {
	c.String(&o.file, "credential-out", "", "`file` to write the credential to, for its owner alone; empty: it is printed")
	c.Bool(&o.asJSON, "json", false, jsonUsage)
}

type credentialJSON struct {
	ID         protocol.RelayID `json:"id"`
	Credential string           `json:"credential,omitempty"`
}

// give makes a credential of relay id, which save stores, and shows it.
func (o *credentialOut) give(env *program.Env, id protocol.RelayID, save func(credential string) error) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	credential := string(id) + "." + base64.RawURLEncoding.EncodeToString(secret)
	if err := save(credential); err != nil {
		return err
	}
	shown := credentialJSON{ID: id, Credential: credential}
	if o.file != "" {
		if err := program.ReplaceFile(o.file, []byte(credential+"\n"), 0o600); err != nil {
			return fmt.Errorf("the credential of %s is lost, rotate it: %w", id, err)
		}
		shown.Credential = ""
	}
	switch {
	case o.asJSON:
		return printJSON(env.Stdout, shown)
	case o.file != "":
		_, err := fmt.Fprintln(env.Stdout, id)
		return err
	}
	_, err := fmt.Fprintln(env.Stdout, credential)
	return err
}

func addRelay(c *program.Command) {
	var at location
	var out credentialOut
	var name string
	at.flags(c)
	out.flags(c)
	c.String(&name, "id", "", "its `id`, which begins with rl_; empty: a new one")
	c.Run(func(ctx context.Context, env *program.Env) error {
		id := protocol.RelayID(name)
		if id == "" {
			id = protocol.NewRelayID()
		}
		if len(id) <= len(protocol.RelayPrefix) || id[:len(protocol.RelayPrefix)] != protocol.RelayPrefix {
			return fmt.Errorf("--id %q doesn't begin with %s", name, protocol.RelayPrefix)
		}
		return out.give(env, id, func(credential string) error {
			return at.use(ctx, func(st *store.Store) error { return st.Fleet.AddRelay(ctx, id, credential) })
		})
	})
}

type relayJSON struct {
	ID           protocol.RelayID `json:"id"`
	URL          string           `json:"url,omitempty"`
	Tunnel       string           `json:"tunnel,omitempty"`
	PublicOrigin string           `json:"public_origin,omitempty"`
	SeenAt       *time.Time       `json:"seen_at,omitempty"`
}

func listRelays(c *program.Command) {
	var at location
	var asJSON bool
	at.flags(c)
	c.Bool(&asJSON, "json", false, jsonUsage)
	c.Run(func(ctx context.Context, env *program.Env) error {
		var found []store.KnownRelay
		if err := at.use(ctx, func(st *store.Store) (err error) {
			found, err = st.Fleet.AllRelays(ctx)
			return err
		}); err != nil {
			return err
		}
		list, all := listing{header: "RELAY\tURL\tTUNNEL\tORIGIN\tSEEN"}, []relayJSON{}
		for _, r := range found {
			list.rows = append(list.rows, []string{string(r.ID), text(r.URL), text(r.Tunnel), text(r.PublicOrigin), stamp(r.Seen)})
			all = append(all, relayJSON{r.ID, r.URL, r.Tunnel, r.PublicOrigin, known(r.Seen)})
		}
		list.json = all
		return list.print(env.Stdout, asJSON)
	})
}

func rotateRelay(c *program.Command) {
	var at location
	var out credentialOut
	var id string
	at.flags(c)
	out.flags(c)
	c.Arg(&id, "RELAY")
	c.Run(func(ctx context.Context, env *program.Env) error {
		return out.give(env, protocol.RelayID(id), func(credential string) error {
			return at.use(ctx, func(st *store.Store) error { return st.Fleet.SetRelayCredential(ctx, protocol.RelayID(id), credential) })
		})
	})
}

func removeRelay(c *program.Command) {
	var at location
	var id string
	at.flags(c)
	c.Arg(&id, "RELAY")
	c.Run(func(ctx context.Context, _ *program.Env) error {
		return at.use(ctx, func(st *store.Store) error { return st.Fleet.RemoveRelay(ctx, protocol.RelayID(id)) })
	})
}
