package devstack

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
)

// publicAddresses returns where the relays will listen for browsers. Of
// several, each must know the others' before it starts, so their ports are
// found beforehand.
func publicAddresses(first string, n int) ([]string, error) {
	list := []string{first}
	for len(list) < n {
		list = append(list, "127.0.0.1:0")
	}
	if n == 1 {
		return list, nil
	}
	var held []net.Listener // all at once, or the same port could come twice
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for i, addr := range list {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("relay %d: %w", i+1, err)
		}
		held = append(held, l)
		list[i] = l.Addr().String()
	}
	return list, nil
}

// origins returns the origins of all relays, those of relay own first.
func origins(public []string, own int) []string {
	var list []string
	add := func(addr string) {
		_, port, _ := net.SplitHostPort(addr)
		list = append(list, "http://"+addr, "http://localhost:"+port)
	}
	add(public[own])
	for i, addr := range public {
		if i != own {
			add(addr)
		}
	}
	return list
}

// startRelay starts relay i and arranges that it comes back on its addresses.
func (s *Stack) startRelay(ctx, children context.Context, i int) error {
	r := &relay{
		relayIdentity: s.identity.Relays[i], name: "relay-" + strconv.Itoa(i+1),
		listen: s.public[i], tunnel: "127.0.0.1:0", admin: "127.0.0.1:0", preview: "127.0.0.1:0",
	}
	if i == 0 && s.cfg.TunnelListen != "" {
		r.tunnel = s.cfg.TunnelListen
	}
	dir, err := s.private(r.name)
	if err != nil {
		return err
	}
	cert, err := s.ca.issue(dir, "tunnel", "localhost", "127.0.0.1", "::1")
	if err != nil {
		return err
	}
	credential, secret := filepath.Join(dir, "credential"), filepath.Join(dir, "secret")
	if err := program.ReplaceFile(credential, []byte(r.Credential), 0o600); err != nil {
		return err
	}
	if err := program.ReplaceFile(secret, []byte(r.Secret), 0o600); err != nil {
		return err
	}
	args := func() []string {
		args := []string{
			"--relay-id", string(r.ID), "--listen", r.listen, "--tunnel-listen", r.tunnel, "--admin-listen", r.admin,
			"--preview-listen", r.preview,
			"--tunnel-cert", cert.cert, "--tunnel-key", cert.key,
			"--control-plane-url", s.cpReady.URL, "--control-plane-connect", s.cpReady.TLS,
			"--credential-file", credential, "--relay-secret-file", secret,
		}
		if len(s.public) > 1 { // alone it knows its own
			args = append(args, "--public-origins", strings.Join(origins(s.public, i), ","))
		}
		return args
	}
	first, err := s.launch(children, r.name, dir, args()...)
	if err != nil {
		return err
	}
	r.set(first)
	s.relays = append(s.relays, r)
	if err := s.await(ctx, first, &r.ready); err != nil {
		return err
	}
	r.listen, r.tunnel = hostPort(r.ready.URL), r.ready.Tunnel
	r.admin, r.preview = hostPort(r.ready.AdminURL), "127.0.0.1:"+portOf(r.ready.PreviewURL)
	r.say = s.say
	r.keeper.start = func() (*child, error) { return s.launch(children, r.name, dir, args()...) }
	r.started = func() { // the pid is another one now
		if err := s.writeReady(); err != nil {
			s.say("ready file: %v", err)
		}
	}
	return nil
}

// dialled returns where sandboxes reach the relays.
func (s *Stack) dialled() []string {
	if len(s.cfg.SandboxRelays) > 0 {
		return s.cfg.SandboxRelays
	}
	var list []string
	for _, r := range s.relays {
		list = append(list, r.ready.Tunnel)
	}
	return list
}

func hostPort(url string) string {
	_, addr, _ := strings.Cut(url, "://")
	return addr
}

func portOf(url string) string {
	_, port, _ := net.SplitHostPort(hostPort(url))
	return port
}
