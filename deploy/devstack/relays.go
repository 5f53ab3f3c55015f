package devstack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/deploy/program"
)

// publicAddresses returns where the relays will listen for browsers. Each must
// know the others' before it starts, so their ports are found beforehand.
func publicAddresses(first string, n int) ([]string, error) {
	list := []string{first}
	for len(list) < n {
		list = append(list, anyPort)
	}
	for i, addr := range list {
		var err error
		if list[i], err = freeAddress(addr, list[:i]); err != nil {
			return nil, fmt.Errorf("relay %d: %w", i+1, err)
		}
	}
	return list, nil
}

// anyPort is the address of a listener that was given none.
const anyPort = "127.0.0.1:0"

// Relays get ports below those that the system gives to whoever wants any, from
// 32768 on: what a relay was given must still be free when it starts, and again
// each time it is started after a crash.
const (
	firstPort = 20_000
	ports     = 12_000
	portTries = 100
)

// freeAddress returns addr, with another port in the place of 0: one that is free
// for TCP and UDP, and not among taken. It fails if addr is in use.
func freeAddress(addr string, taken []string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if port != "0" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return "", err
		}
		return addr, l.Close()
	}
	for range portTries {
		addr = net.JoinHostPort(host, strconv.Itoa(firstPort+rand.IntN(ports)))
		if slices.Contains(taken, addr) {
			continue
		}
		if err = free(addr); err == nil || !errors.Is(err, syscall.EADDRINUSE) {
			return addr, err
		}
	}
	return "", fmt.Errorf("no port from %d on is free: %w", firstPort, err)
}

// free reports why addr is not free for TCP and UDP.
func free(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
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
		listen: s.public[i],
	}
	if i == 0 {
		r.tunnel = s.cfg.TunnelListen
	}
	if err := s.choosePorts(r); err != nil {
		return err
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
		if n := s.cfg.SocketsPerPerson; n > 0 {
			args = append(args, "--sockets-per-person", strconv.Itoa(n))
		}
		if ids := s.extension.among(s.cfg.ExtensionIDs); len(ids) > 0 {
			args = append(args, "--extension-ids", strings.Join(ids, ","))
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

// choosePorts gives a relay the addresses that it was not told to have.
func (s *Stack) choosePorts(r *relay) error {
	taken := append(slices.Clone(s.public), r.tunnel)
	for _, addr := range []*string{&r.tunnel, &r.admin, &r.preview} {
		if *addr != "" {
			continue
		}
		var err error
		if *addr, err = freeAddress(anyPort, taken); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		taken = append(taken, *addr)
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
