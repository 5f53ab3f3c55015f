package relay

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// Every listener presents the certificate that was put in the place of the one
// with which the relay began.
func TestRenewedCertificates(t *testing.T) {
	cfg := complete()
	cfg.Cert, cfg.Key, _ = certificate(t)
	cfg.TunnelCert, cfg.TunnelKey = cfg.Cert, cfg.Key
	cfg.PreviewListen = "127.0.0.1:0"
	r, err := New(cfg)
	must(t, err)
	defer r.closeListeners()
	cert, key, pool := certificate(t)
	must(t, os.Rename(key, cfg.Key))
	must(t, os.Rename(cert, cfg.Cert))

	for name, l := range map[string]net.Listener{"public": r.public, "preview": r.preview} {
		accepted := make(chan error, 1)
		go func() { // received below
			conn, err := l.Accept()
			if err == nil {
				err = conn.(*tls.Conn).Handshake()
				conn.Close()
			}
			accepted <- err
		}()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool})
		if err != nil {
			t.Errorf("the %s listener: %v", name, err)
		} else {
			conn.Close()
		}
		if err := <-accepted; err != nil {
			t.Errorf("the %s listener says %v", name, err)
		}
	}
	at := r.Addresses()
	for carrier, address := range map[tunnel.Carrier]string{tunnel.CarrierQUIC: at.Tunnel, tunnel.CarrierWebSocket: at.TunnelWebSocket} {
		ctx, cancel := context.WithTimeout(t.Context(), slowly)
		verified := false
		_, err := tunnel.Dial(ctx, tunnel.DialConfig{
			Addr: address, TLS: &tls.Config{RootCAs: pool}, Carriers: []tunnel.Carrier{carrier},
			Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) {
				verified = true
				return tunneltest.Hello(), nil // whose certificate is none
			},
		})
		if cancel(); !verified {
			t.Errorf("the tunnel listener, by %v: %v", carrier, err)
		}
	}
}
