package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/fleet"
	"github.com/fairlead/fairlead/deploy/program"
)

func serve(c *program.Command) {
	var cfg controlplane.Config
	var readyFile string
	c.String(&cfg.StateDir, "state-dir", "", stateUsage+"; made if it doesn't exist")
	databaseFlags(c, &cfg.Database)
	c.String(&cfg.Listen, "listen", "127.0.0.1:8090", "`address` for relays and machines: plain HTTP on loopback, anywhere with --cert and --key")
	c.String(&cfg.Cert, "cert", "", "certificate `file` of --listen, PEM")
	c.String(&cfg.Key, "key", "", "key `file` of --listen, PEM")
	c.String(&cfg.RelayURLCA, "relay-url-ca", "", "PEM `file` with who vouches for relays at an https --advertise-url (default: the system's)")
	c.String(&cfg.TLSListen, "tls-listen", "", "`address` for agents over TLS; empty: none")
	c.String(&cfg.TLSCert, "tls-cert", "", "certificate `file` of --tls-listen, PEM")
	c.String(&cfg.TLSKey, "tls-key", "", "key `file` of --tls-listen, PEM")
	c.String(&cfg.AdminListen, "admin-listen", "", "`address` for health, metrics and profiles, which ask nobody who they are; empty: none")
	c.Duration(&cfg.CertificateLife, "certificate-life", fleet.DefaultCertificateLife, "how long the certificates last that sandboxes get by invitation and renewal")
	c.Int(&cfg.GrantsPerPerson, "grants-per-person", controlplane.DefaultGrantsPerPerson, "`number` of live grants that one person may have")
	c.String(&cfg.DevSeed, "dev-seed", "", "`file` with development users, loaded at each start")
	c.String(&readyFile, "ready-file", "", "`file` to write the addresses to, once they accept connections")
	loginFlags(c, &cfg.Login)
	c.String(&cfg.Webhook.URL, "approval-webhook", "", "`URL` that is told, by POST, of approvals that are asked for, decided or expired, and of turns that coding agents finish; https, or http on loopback")
	c.Secret(&cfg.Webhook.Secret, "approval-webhook-secret", "the secret that signs what it is told, of 16 bytes at least")
	c.String(&cfg.Integrations.File, "integrations", "", "`file` that says of which providers people can connect accounts, YAML; empty: none")
	c.String(&cfg.Integrations.VaultKeyFile, "vault-key-file", "", vaultKeyUsage+"; needed with --integrations")
	c.Require("state-dir")
	c.Run(func(ctx context.Context, env *program.Env) error {
		if cfg.GrantsPerPerson < 1 {
			return fmt.Errorf("--grants-per-person must be at least 1")
		}
		cfg.Revision, cfg.Logger = env.Revision, env.Logger
		server, err := controlplane.New(ctx, cfg)
		if err != nil {
			return err
		}
		if readyFile != "" {
			if err := writeReady(readyFile, env.Revision, server); err != nil {
				return err
			}
		}
		return server.Run(ctx)
	})
}

// loginFlags declares how people sign in.
func loginFlags(c *program.Command, cfg *controlplane.LoginConfig) {
	c.String(&cfg.Issuer, "oidc-issuer", "", "`URL` of the OpenID Connect provider at which people sign in; empty: none")
	c.String(&cfg.ClientID, "oidc-client-id", "", "what the provider calls this control plane")
	c.Secret(&cfg.ClientSecret, "oidc-client-secret", "the secret that the provider gave with it")
	c.String(&cfg.Name, "oidc-name", "", "what the button to sign in says")
	c.String(&cfg.PublicURL, "public-url", "", "`origin` at which browsers find the relays; the provider sends them back to /auth/callback there")
	c.Bool(&cfg.AllowSignUp, "oidc-allow-sign-up", false, "let everybody in whom the provider knows; else only who was added with an e-mail address")
	c.Strings(&cfg.AllowedDomains, "oidc-allowed-domains", "let everybody in with a verified address in these domains")
}

func writeReady(file, revision string, server *controlplane.Server) error {
	data, err := json.Marshal(struct {
		Revision string `json:"revision"`
		PID      int    `json:"pid"`
		URL      string `json:"url"`
		TLS      string `json:"tls,omitempty"` // "host:port"
		Admin    string `json:"admin_url,omitempty"`
	}{revision, os.Getpid(), server.URL(), server.TLSAddr(), server.AdminURL()})
	if err != nil {
		return err
	}
	return program.ReplaceFile(file, append(data, '\n'), 0o600)
}
