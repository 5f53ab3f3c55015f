package agenttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tunnel"
)

// An Authority certifies relays and control planes.
type Authority struct {
	PEM  string // its certificate
	self tls.Certificate
}

// NewAuthority returns one that nobody else trusts.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{}
	a.self = a.certify(tb, "test CA")
	a.PEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.self.Certificate[0]}))
	return a
}

// Listen starts a relay, which ends with the test. It takes WebSockets as well
// if cfg.WebSocket is set, and then cfg.Conn must be, too.
func (a *Authority) Listen(tb testing.TB, cfg tunnel.ListenConfig) *tunnel.Listener {
	tb.Helper()
	if cfg.Conn == nil {
		conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		Must(tb, err)
		cfg.Conn = conn
	}
	cfg.TrustOrigin = func(string) bool { return true }
	cfg.TLS = &tls.Config{Certificates: []tls.Certificate{a.certify(tb, "relay.test")}}
	l, err := tunnel.Listen(cfg)
	Must(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l
}

// TLS verifies servers that a has certified.
func (a *Authority) TLS() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.self.Leaf)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
}

// certify makes a certificate for a server on 127.0.0.1, or a's own where a has
// none yet.
func (a *Authority) certify(tb testing.TB, name string) tls.Certificate {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(tb, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: a.self.Leaf == nil,
	}
	parent, parentKey := a.self.Leaf, a.self.PrivateKey
	if template.IsCA {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	Must(tb, err)
	leaf, err := x509.ParseCertificate(der)
	Must(tb, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
