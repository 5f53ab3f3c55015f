// Package oauth connects accounts of people at the services that are set up:
// it asks for tokens with PKCE, renews them and takes them back.
package oauth

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/oauth2"
)

const (
	maxSetupBytes  = 64 << 10
	maxSecretBytes = 4 << 10
)

// A service is what is known of a provider before anybody sets it up.
type service struct {
	authURL, tokenURL, revokeURL, apiURL string
	scopes                               []string
	authParams                           map[string]string
	revoke                               revocation
}

// A revocation is how a provider takes a token back.
type revocation uint8

const (
	revokeToken       revocation = iota // RFC 7009
	revokeApplication                   // GitHub: DELETE with the client's credentials
)

// offline has Google give a refresh token, each time an account is connected.
var offline = map[string]string{"access_type": "offline", "prompt": "consent"}

func google(apiURL string, scopes ...string) service {
	return service{
		authURL:   "https://accounts.google.com/o/oauth2/v2/auth",
		tokenURL:  "https://oauth2.googleapis.com/token",
		revokeURL: "https://oauth2.googleapis.com/revoke",
		apiURL:    apiURL, scopes: scopes, authParams: offline,
	}
}

// services holds the providers that can be set up.
var services = map[string]service{
	"gmail":           google("https://gmail.googleapis.com", "https://www.googleapis.com/auth/gmail.modify"),
	"google_drive":    google("https://www.googleapis.com", "https://www.googleapis.com/auth/drive"),
	"google_calendar": google("https://www.googleapis.com", "https://www.googleapis.com/auth/calendar"),
	"github": {
		authURL:   "https://github.com/login/oauth/authorize",
		tokenURL:  "https://github.com/login/oauth/access_token",
		revokeURL: "https://api.github.com/applications/{client_id}/token",
		apiURL:    "https://api.github.com", scopes: []string{"repo", "read:user"}, revoke: revokeApplication,
	},
}

// Providers lists the providers that can be set up.
func Providers() []string { return []string{"gmail", "github", "google_drive", "google_calendar"} }

// A setupEntry is how the file says what differs from what is known.
type setupEntry struct {
	ClientID         string   `yaml:"client_id"`
	ClientSecretFile string   `yaml:"client_secret_file"` // relative to the setup's own file
	AuthURL          string   `yaml:"auth_url"`
	TokenURL         string   `yaml:"token_url"`
	RevokeURL        string   `yaml:"revoke_url"` // "none": tokens can't be taken back
	APIURL           string   `yaml:"api_url"`
	Scopes           []string `yaml:"scopes"`
}

// Load reads which providers are set up, by name, from the YAML file at path.
// now is the
// clock. Errors name the file and quote no secret.
func Load(path string, now func() time.Time) (map[string]*Provider, error) {
	data, err := readFile(path, maxSetupBytes, false)
	if err != nil {
		return nil, err
	}
	var entries map[string]setupEntry
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	if err := dec.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, oneLine(err))
	}
	providers := make(map[string]*Provider)
	for name, entry := range entries {
		p, err := entry.provider(name, filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		p.now = now
		providers[name] = p
	}
	return providers, nil
}

func (e setupEntry) provider(name, dir string) (*Provider, error) {
	known, ok := services[name]
	if !ok {
		return nil, fmt.Errorf("no such provider: want %s", strings.Join(Providers(), ", "))
	}
	if e.ClientID == "" || e.ClientSecretFile == "" {
		return nil, errors.New("want client_id and client_secret_file")
	}
	file := e.ClientSecretFile
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	secret, err := readFile(file, maxSecretBytes, true)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		Name: name, APIURL: strings.TrimSuffix(cmp.Or(e.APIURL, known.apiURL), "/"),
		revokeURL: cmp.Or(e.RevokeURL, known.revokeURL), revoke: known.revoke, params: known.authParams,
		config: oauth2.Config{
			ClientID: e.ClientID, ClientSecret: strings.TrimSpace(string(secret)),
			Endpoint: oauth2.Endpoint{
				AuthURL: cmp.Or(e.AuthURL, known.authURL), TokenURL: cmp.Or(e.TokenURL, known.tokenURL),
				AuthStyle: oauth2.AuthStyleInParams,
			},
			Scopes: slices.Clone(known.scopes),
		},
	}
	if p.config.ClientSecret == "" {
		return nil, fmt.Errorf("%s is empty", file)
	}
	if len(e.Scopes) > 0 {
		p.config.Scopes = e.Scopes
	}
	if p.revokeURL == "none" {
		p.revokeURL = ""
	}
	p.revokeURL = strings.ReplaceAll(p.revokeURL, "{client_id}", url.PathEscape(e.ClientID))
	for what, text := range map[string]string{
		"auth_url": p.config.Endpoint.AuthURL, "token_url": p.config.Endpoint.TokenURL,
		"revoke_url": p.revokeURL, "api_url": p.APIURL,
	} {
		if err := checkURL(text); err != nil && !(what == "revoke_url" && text == "") {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	p.client = newClient()
	return p, nil
}

// checkURL wants https, or http on loopback: tokens travel there.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("want a URL")
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	switch {
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && (host == "localhost" || ip != nil && ip.IsLoopback()):
		return nil
	}
	return errors.New("want https, or http on loopback")
}

// readFile reads at most limit bytes of a file; a private one must be its
// owner's alone.
func readFile(path string, limit int64, private bool) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); private && mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: mode %04o lets others in, want 0600", path, mode)
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return data, err
}

// oneLine puts a YAML error on one line.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
