// Package sitepolicy reads and writes the file that says which sites' cookies a
// source sends and a sink takes: blocklist.yaml of seed 004.
package sitepolicy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// Name is the file's, on both sides.
	Name = "blocklist.yaml"
	// version is the only one.
	version = 1
	// maxFile bounds the file, in bytes.
	maxFile = 4 << 20

	block = "blocklist"
	allow = "allowlist"
)

// A Domain is one pattern, and what its owner says of it.
type Domain struct {
	Pattern     string `yaml:"pattern" json:"pattern"` // of host_key, as in SQLite's LIKE
	Description string `yaml:"description,omitempty" json:"description,omitempty"`
}

// A File is what the file holds.
type File struct {
	Version int      `yaml:"version"`
	Policy  string   `yaml:"policy,omitempty"` // "blocklist", also where it is empty, or "allowlist"
	Domains []Domain `yaml:"domains"`
}

// Read reads the file at path. Without one everything passes: it returns an empty
// blocklist. One that is there and can't be read, has an unknown key, another version
// or an empty pattern is an error: cookies must not pass by mistake.
func Read(path string) (File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{Version: version}, nil
	}
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return File{}, err
	}
	parsed, err := Parse(data)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", Name, err)
	}
	return parsed, nil
}

// Parse reads what a file holds.
func Parse(data []byte) (File, error) {
	if len(data) > maxFile {
		return File{}, fmt.Errorf("over %d bytes", maxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	var f File
	if err := decoder.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			return File{}, errors.New("nothing in it: remove it to let all sites pass")
		}
		return File{}, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return File{}, errors.New("more than one document")
	}
	if f.Version != version {
		return File{}, fmt.Errorf("version %d, want %d", f.Version, version)
	}
	if !slices.Contains([]string{"", block, allow}, f.Policy) {
		return File{}, fmt.Errorf("policy %q, want %q or %q", f.Policy, block, allow)
	}
	if _, err := f.Compile(); err != nil {
		return File{}, err
	}
	return f, nil
}

// Allows reports whether only what is named passes.
func (f File) Allows() bool { return f.Policy == allow }

// Mode says in a word what passes: "sync-all", "blocklist" or "allowlist".
func (f File) Mode() string {
	switch {
	case f.Allows():
		return allow
	case len(f.Domains) == 0:
		return "sync-all"
	}
	return block
}

// Compile returns the policy that the file describes.
func (f File) Compile() (*seal.Policy, error) {
	patterns := make([]string, len(f.Domains))
	for i, d := range f.Domains {
		patterns[i] = d.Pattern
	}
	return seal.NewPolicy(f.Allows(), patterns)
}

// Write writes the file at path, whole or not at all, for its owner alone.
func (f File) Write(path string) error {
	f.Version = version
	data, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if _, err := Parse(data); err != nil {
		return err
	}
	return program.ReplaceFile(path, data, 0o600)
}

// Set has a site pass or not. What names the site in any form goes; the site and its
// subdomains come, where the policy has to name them for that.
func (f File) Set(site string, pass bool, description string) File {
	f.Domains = slices.DeleteFunc(slices.Clone(f.Domains), func(d Domain) bool { return slices.Contains(forms(site), strings.ToLower(d.Pattern)) })
	if pass == f.Allows() {
		f.Domains = append(f.Domains, Domain{site, description}, Domain{"%." + site, description})
	}
	return f
}

// forms are the patterns that mean a site or what is below it.
func forms(site string) []string { return []string{site, "%." + site, "%" + site, "." + site} }

// List returns the sites of which both patterns are there, and all other patterns.
func (f File) List() (sites, others []string) {
	sites, others = []string{}, []string{}
	have := map[string]bool{}
	for _, d := range f.Domains {
		have[strings.ToLower(d.Pattern)] = true
	}
	for _, d := range f.Domains {
		pattern := strings.ToLower(d.Pattern)
		site := strings.TrimPrefix(pattern, "%.")
		if !have[site] || !have["%."+site] || strings.HasPrefix(site, "%.") {
			others = append(others, d.Pattern)
		} else if site == pattern && !slices.Contains(sites, site) {
			sites = append(sites, site)
		}
	}
	return sites, others
}

// Site returns the site that somebody means who names it by an address, with a port
// or a path, with dots or *. before it. It fails for anything else, and for names
// that aren't ASCII: they are punycode in a cookie's host.
func Site(text string) (string, error) {
	site := strings.ToLower(strings.TrimSpace(text))
	if _, rest, ok := strings.Cut(site, "://"); ok {
		site = rest
	}
	site, _, _ = strings.Cut(site, "/")
	site, _, _ = strings.Cut(site, ":")
	site = strings.Trim(strings.TrimPrefix(site, "*."), ".")
	if site == "" || len(site) > 253 || strings.Contains(site, "..") || strings.Trim(site, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "", protocol.Errorf(protocol.KindInvalid, "%.80q is no site: want a name such as example.com, in ASCII (xn--… for others)", text)
	}
	return site, nil
}
