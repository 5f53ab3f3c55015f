package relay

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/fairlead/fairlead/tunnel"
)

// portAttempts is how often the relay asks the system for a port that is free
// for both UDP and TCP.
const portAttempts = 16

// registrationMargin keeps the rate below the limit where agents count it, too:
// evenly spaced answers arrive in bursts.
const registrationMargin = 0.95

// listenTunnels opens the listeners that agents dial.
func (r *Relay) listenTunnels() error {
	tlsConfig, err := loadTLS(r.cfg.TunnelCert, r.cfg.TunnelKey, r.log.With("listener", "tunnel"))
	if err != nil {
		return fmt.Errorf("tunnel listener: %w", err)
	}
	tlsConfig.NextProtos = nil // the tunnel sets its own
	udp, tcp, err := r.tunnelSockets()
	if err != nil {
		return fmt.Errorf("tunnel listener: %w", err)
	}
	cfg := tunnel.ListenConfig{
		Conn: udp, TLS: tlsConfig, Named: r.id, Revision: r.cfg.Revision, Admit: r.fleet.Admit,
		Connect: r.connect.Dial, Connected: r.metrics.connected, Events: r.metrics.events(),
		Origin: r.origins.List()[0], Alternates: r.alternates, TrustOrigin: r.origins.Listed,
		StatelessResetKey: r.cfg.resetKey(), TokenKey: r.cfg.tokenKey(), Logger: r.log,
		Registrations: registrationMargin * r.cfg.RegistrationsPerSecond,
	}
	if tcp != nil {
		cfg.WebSocket, r.websocket = tcp, tcp.Addr()
	}
	if r.tunnels, err = tunnel.Listen(cfg); err != nil {
		udp.Close()
		if tcp != nil {
			tcp.Close()
		}
		return fmt.Errorf("tunnel listener: %w", err)
	}
	return nil
}

// tunnelSockets opens the tunnels' UDP socket and the TCP listener beside it,
// nil if there is none.
func (r *Relay) tunnelSockets() (net.PacketConn, net.Listener, error) {
	for attempt := 1; ; attempt++ {
		udp, err := net.ListenPacket("udp", r.cfg.TunnelListen)
		if err != nil {
			return nil, nil, err
		}
		if r.cfg.TunnelWebSocketListen == WebSocketOff || r.cfg.TunnelWebSocketListen == "" && r.cfg.sharesPublicPort() {
			return udp, nil, nil
		}
		address := r.cfg.TunnelWebSocketListen
		if address == "" {
			host, _, _ := net.SplitHostPort(r.cfg.TunnelListen)
			address = net.JoinHostPort(host, strconv.Itoa(udp.LocalAddr().(*net.UDPAddr).Port))
		}
		tcp, err := net.Listen("tcp", address)
		switch {
		case err == nil:
			return udp, tcp, nil
		case r.cfg.TunnelWebSocketListen == "" && errors.Is(err, syscall.EADDRINUSE):
			if _, port, _ := net.SplitHostPort(r.cfg.TunnelListen); port == "0" && attempt < portAttempts {
				udp.Close()
				continue
			}
			// A killed relay must restart even if another program has this port now.
			r.log.Warn("no tunnels over WebSocket: the port is taken", "addr", address)
			return udp, nil, nil
		}
		udp.Close()
		return nil, nil, err
	}
}

// sharesPublicPort reports whether the public listener has the TCP port for
// tunnels over WebSocket, which then use that listener.
func (c *Config) sharesPublicPort() bool {
	_, public, err := net.SplitHostPort(c.Listen)
	_, tunnels, err2 := net.SplitHostPort(c.TunnelListen)
	return err == nil && err2 == nil && public == tunnels && public != "0"
}

// withTunnels accepts tunnels over WebSocket at the public listener, if that is
// reached by TLS. They come before the checks of Host and Origin, which are for
// browsers; requests from browsers are refused.
func (r *Relay) withTunnels(next http.Handler) http.Handler {
	if r.cfg.TunnelWebSocketListen == WebSocketOff || r.cfg.Cert == "" && !r.cfg.BehindProxy {
		return next
	}
	tunnels := r.tunnels.WebSocketHandler(!r.cfg.BehindProxy)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == tunnel.WebSocketPath {
			tunnels.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}
