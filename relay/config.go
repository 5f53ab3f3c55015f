package relay

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/certfile"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/syncdoor"
)

// Config is what a relay is told at its start.
type Config struct {
	RelayID  protocol.RelayID // default: the one that Credential names
	Revision string
	Logger   *slog.Logger

	// Listen is the public address. It speaks plain HTTP on loopback only;
	// elsewhere it needs Cert and Key, or BehindProxy.
	Listen        string
	Cert, Key     string // PEM files of the public listener; read again when they change
	BehindProxy   bool
	PublicOrigins []string // default: the loopback origins of Listen

	// ExtensionIDs are the browser extensions whose side panels may come (seed 000);
	// none: there is nothing for side panels here.
	ExtensionIDs []string

	// TunnelListen is the UDP address that agents dial, with the TLS
	// certificate they verify, which is read again when its files change.
	TunnelListen          string
	TunnelCert, TunnelKey string
	// TunnelWebSocketListen is the TCP address for agents whose network blocks
	// UDP, with the same certificate; WebSocketOff disables it. Default: the port
	// of TunnelListen, unless the public listener has it. A public listener that
	// is reached by TLS takes these tunnels too, at /tunnel.
	TunnelWebSocketListen string
	// RegistrationsPerSecond limits how many agents may register; default 200,
	// negative: no limit.
	RegistrationsPerSecond float64

	// SocketsPerPerson is how many terminal sockets one person may have here, and how
	// many chat sockets; default 256.
	SocketsPerPerson int

	// NoIOURing has each viewer sent to by a call of its own, as where the kernel has no
	// io_uring.
	NoIOURing bool

	// SyncMaxBytes bounds what a laptop pushes at once (seed 004), in bytes; default
	// DefaultSyncMaxBytes.
	SyncMaxBytes int

	AdminListen string

	// PreviewListen is the address that serves previews, by the same rules as
	// Listen and with the same certificate; empty: there are none. Each preview
	// has a host name of its own below PreviewOrigin's. That must not be below a
	// public origin's host, for which pages of previews could then set cookies.
	PreviewListen string
	PreviewOrigin string // default, of a loopback listener: preview.localhost

	Upstream
	// AdvertiseURL and AdvertiseTunnel are where the control plane and agents
	// find this relay; default: where it listens, see advertised.
	AdvertiseURL, AdvertiseTunnel string
	// Secret is what the keys of QUIC resets and tokens and of the web client's
	// cookies are derived from; empty: random.
	Secret []byte

	// KeysMaxAge is how long the relay trusts the control plane's keys without
	// refreshing them; afterwards it refuses every token. Default 1 h.
	KeysMaxAge time.Duration

	OnReady      func(Addresses) error // called once the relay takes traffic; may be nil
	DrainTimeout time.Duration         // default 10 s

	madeUp bool // RelayID is random, until the control plane says the real one
}

// WebSocketOff as an address: no tunnels over WebSocket.
const WebSocketOff = "off"

// DefaultSyncMaxBytes is Config.SyncMaxBytes where nothing is said.
const DefaultSyncMaxBytes = syncdoor.DefaultMaxBytes

// defaultRegistrations is RegistrationsPerSecond of a Config that says nothing.
const defaultRegistrations = 200

// Addresses say where a relay is.
type Addresses struct {
	URL    string `json:"url"`
	Tunnel string `json:"tunnel"`
	// TunnelWebSocket is where tunnels come over WebSocket, besides the public
	// listener.
	TunnelWebSocket string           `json:"tunnel_websocket,omitempty"`
	AdminURL        string           `json:"admin_url"`
	Preview         string           `json:"preview_url,omitempty"` // of the listener; the previews' own names are below its origin
	RelayID         protocol.RelayID `json:"relay_id"`
	Revision        string           `json:"revision"`
}

// check completes c and reports what is missing or contradictory.
func (c *Config) check() error {
	if err := c.identify(); err != nil {
		return err
	}
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = 10 * time.Second
	}
	if c.RegistrationsPerSecond == 0 {
		c.RegistrationsPerSecond = defaultRegistrations
	}
	if c.KeysMaxAge == 0 {
		c.KeysMaxAge = time.Hour
	}
	if c.SocketsPerPerson < 0 {
		return fmt.Errorf("--sockets-per-person must be more than 0")
	}
	if c.SyncMaxBytes < 0 {
		return fmt.Errorf("--sync-max-bytes must be more than 0")
	}
	if c.KeysMaxAge < 0 {
		return fmt.Errorf("--keys-max-age must be more than 0")
	}
	for _, needed := range []struct{ name, value string }{
		{"tunnel-cert", c.TunnelCert}, {"tunnel-key", c.TunnelKey},
		{"control-plane-url", c.ControlPlaneURL}, {"control-plane-connect", c.ControlPlaneConnect},
		{"credential-file", c.Credential},
	} {
		if needed.value == "" {
			return fmt.Errorf("--%s is needed", needed.name)
		}
	}
	if u, err := url.Parse(c.ControlPlaneURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--control-plane-url must be http(s)://host[:port]")
	}
	if err := c.believe(); err != nil {
		return err
	}
	if (c.Cert == "") != (c.Key == "") {
		return fmt.Errorf("--cert and --key go together")
	}
	if c.Cert == "" && !c.BehindProxy && !loopback(c.Listen) {
		return fmt.Errorf("--listen %s is not loopback: give --cert and --key, or --behind-proxy", c.Listen)
	}
	return c.checkPreviews()
}

// identify completes the relay's id. A credential from "controlplane relay add"
// begins with it; for any other the control plane knows the id.
func (c *Config) identify() error {
	named, _, found := strings.Cut(c.Credential, ".")
	if !found || !strings.HasPrefix(named, protocol.RelayPrefix) || !protocol.ValidID(protocol.RelayID(named)) {
		named = ""
	}
	switch {
	case named != "" && c.RelayID != "" && c.RelayID != protocol.RelayID(named):
		return fmt.Errorf("--relay-id %s: the credential is %s's", c.RelayID, named)
	case named != "":
		c.RelayID = protocol.RelayID(named)
	case c.RelayID == "":
		c.RelayID, c.madeUp = protocol.NewRelayID(), true
	}
	return nil
}

// An Upstream says where a relay's control plane is.
type Upstream struct {
	ControlPlaneURL     string // REST, for the relay itself and forwarded routes
	ControlPlaneCA      string // PEM file: who vouches for it at an https URL; default: the system's
	ControlPlaneConnect string // "host:port" of the TLS listener, target of connect streams
	Credential          string // the relay's secret there

	believing *http.Transport // believes ControlPlaneCA alone; nil: there is none
}

// believe reads who vouches for the control plane.
func (u *Upstream) believe() error {
	if u.ControlPlaneCA == "" {
		return nil
	}
	if !strings.HasPrefix(u.ControlPlaneURL, "https://") {
		return fmt.Errorf("--control-plane-ca is for a --control-plane-url that begins with https://")
	}
	roots, err := certfile.Pool(u.ControlPlaneCA)
	if err != nil {
		return fmt.Errorf("--control-plane-ca: %w", err)
	}
	u.believing = http.DefaultTransport.(*http.Transport).Clone()
	u.believing.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	return nil
}

// transport returns what carries requests there.
func (u *Upstream) transport() http.RoundTripper {
	if u.believing == nil {
		return http.DefaultTransport
	}
	return u.believing
}

// advertised returns where the control plane finds a relay that listens at own
// and has this public origin: at own, if only this machine reaches that, or if
// the relay listens on all addresses and the control plane is on this machine;
// otherwise at the origin, which everybody uses.
func (c *Config) advertised(own, origin string) string {
	listening, err := url.Parse(own)
	if c.AdvertiseURL != "" || err != nil || loopback(listening.Host) {
		return cmp.Or(c.AdvertiseURL, own)
	}
	if plane, err := url.Parse(c.ControlPlaneURL); err == nil && c.Cert == "" && unspecified(listening.Host) && loopback(withPort(plane)) {
		return "http://" + net.JoinHostPort("127.0.0.1", listening.Port())
	}
	return origin
}

// advertisedTunnel returns where agents find a relay that listens at own. If
// that is all addresses, it has the host name of the public origin.
func (c *Config) advertisedTunnel(own, origin string) string {
	public, err := url.Parse(origin)
	if c.AdvertiseTunnel != "" || err != nil || !unspecified(own) {
		return cmp.Or(c.AdvertiseTunnel, own)
	}
	_, port, _ := net.SplitHostPort(own)
	return net.JoinHostPort(public.Hostname(), port)
}

// unspecified reports whether a "host:port" stands for all addresses.
func unspecified(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsUnspecified()
}

// withPort returns u's host with its port, 80 by default.
func withPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")) }

func (c *Config) checkPreviews() error {
	switch {
	case c.PreviewListen == "" && c.PreviewOrigin == "":
		return nil
	case c.PreviewListen == "":
		return fmt.Errorf("--preview-origin needs --preview-listen")
	case !loopback(c.PreviewListen) && c.Cert == "" && !c.BehindProxy:
		return fmt.Errorf("--preview-listen %s is not loopback: give --cert and --key, or --behind-proxy", c.PreviewListen)
	case !loopback(c.PreviewListen) && c.PreviewOrigin == "":
		return fmt.Errorf("--preview-listen %s is not loopback: give --preview-origin", c.PreviewListen)
	case c.PreviewOrigin == "":
		return nil
	}
	u, err := url.Parse(c.PreviewOrigin)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || c.PreviewOrigin != u.Scheme+"://"+u.Host {
		return fmt.Errorf("--preview-origin must be http(s)://host[:port]")
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return fmt.Errorf("--preview-origin %s is an address, which has no names below it", c.PreviewOrigin)
	}
	for _, origin := range c.PublicOrigins {
		public, err := url.Parse(origin)
		if err != nil {
			continue // refused elsewhere
		}
		host, preview := strings.ToLower(public.Hostname()), strings.ToLower(u.Hostname())
		if preview == host || host != "localhost" && strings.HasSuffix(preview, "."+host) {
			return fmt.Errorf("--preview-origin %s is, or is below, the public origin %s", c.PreviewOrigin, origin)
		}
		if strings.HasSuffix(host, "."+preview) {
			return fmt.Errorf("the public origin %s is below --preview-origin %s", origin, c.PreviewOrigin)
		}
	}
	return nil
}

// previewOrigin returns the origin below whose host previews are, empty if there
// are none.
func (c *Config) previewOrigin(listening net.Addr) string {
	if c.PreviewOrigin != "" || listening == nil {
		return c.PreviewOrigin
	}
	scheme := "http"
	if c.Cert != "" {
		scheme = "https"
	}
	_, port, _ := net.SplitHostPort(listening.String())
	return scheme + "://preview.localhost:" + port
}

// origins returns the public origins, by default those of a loopback listener.
func (c *Config) origins(listening net.Addr) []string {
	if len(c.PublicOrigins) > 0 {
		return c.PublicOrigins
	}
	scheme := "http"
	if c.Cert != "" {
		scheme = "https"
	}
	_, port, _ := net.SplitHostPort(listening.String())
	return []string{
		scheme + "://127.0.0.1:" + port, scheme + "://localhost:" + port, scheme + "://[::1]:" + port,
	}
}

// resetKey and tokenKey let a restarted relay end its predecessor's
// connections and accept its address tokens.
func (c *Config) resetKey() []byte { return derive(c.Secret, "quic stateless reset") }
func (c *Config) tokenKey() []byte { return derive(c.Secret, "quic token") }

// appKey seals the cookies of the web client, so that they outlive the relay.
func (c *Config) appKey() []byte { return derive(c.Secret, "app cookie") }

func derive(secret []byte, purpose string) []byte {
	if len(secret) == 0 {
		return nil
	}
	key := sha256.Sum256(append([]byte("fairlead "+purpose+"\x00"), secret...))
	return key[:]
}

// loadTLS reads a listener's certificate, which then follows its files, and names
// the file that is at fault.
func loadTLS(cert, key string, log *slog.Logger) (*tls.Config, error) {
	get, err := certfile.Follow(cert, key, time.Now, log)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		GetCertificate: get,
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"http/1.1"}, // HTTP/2 stays off: its CVEs outnumber our need
	}, nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}
