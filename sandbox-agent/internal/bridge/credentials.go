package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"

	"github.com/fairlead/fairlead/protocol"
)

// maxCredentials bounds the file.
const maxCredentials = 16 << 10

// fromEnvironment fills what flags leave open from the environment.
func fromEnvironment(flags protocol.MCPCredentials, getenv func(string) string) protocol.MCPCredentials {
	if getenv == nil {
		return flags
	}
	first := func(given, name string) string {
		for _, prefix := range []string{"FAIRLEAD_", "ORCABOT_"} {
			if given == "" {
				given = getenv(prefix + name)
			}
		}
		return given
	}
	return protocol.MCPCredentials{
		URL:       first(flags.URL, "MCP_URL"),
		SessionID: protocol.SessionID(first(string(flags.SessionID), "SESSION_ID")),
		PTYID:     protocol.PTYID(first(string(flags.PTYID), "PTY_ID")),
		Secret:    first(flags.Secret, "MCP_SECRET"),
	}
}

// Find returns the credentials of the terminal in which a program runs: its
// environment's, or those in a file.
func Find(getenv func(string) string, file string) (protocol.MCPCredentials, error) {
	found, err := find(fromEnvironment(protocol.MCPCredentials{}, getenv), file)
	if err == nil && found.SessionID == "" {
		err = errors.New("bridge: the credentials name no session")
	}
	return found, err
}

// find returns the credentials to begin with: the given ones, with what they lack
// from the file.
func find(given protocol.MCPCredentials, file string) (protocol.MCPCredentials, error) {
	if given.URL == "" || given.PTYID == "" || given.Secret == "" {
		found, err := readCredentials(file, given)
		if err != nil {
			return found, fmt.Errorf("bridge: not in a terminal of a sandbox: neither variables nor a file say where its tools are: %w", err)
		}
		return found, nil
	}
	return given, check(given)
}

// readCredentials reads the file, which must be about the terminal that given
// names, as far as it does: another terminal's secret is not ours to use.
func readCredentials(file string, given protocol.MCPCredentials) (protocol.MCPCredentials, error) {
	var c protocol.MCPCredentials
	if file == "" {
		return c, errors.New("there is no file")
	}
	f, err := os.Open(file)
	if err != nil {
		return c, errors.New("the file can't be opened")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err != nil || len(text) > maxCredentials || json.Unmarshal(text, &c) != nil {
		return protocol.MCPCredentials{}, errors.New("the file holds no credentials")
	}
	if given.PTYID != "" && c.PTYID != given.PTYID || given.SessionID != "" && c.SessionID != given.SessionID {
		return protocol.MCPCredentials{}, errors.New("the file is about another terminal")
	}
	return c, check(c)
}

// check reports what c lacks. The secret goes to this machine alone.
func check(c protocol.MCPCredentials) error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" || !isLoopback(u.Hostname()):
		return errors.New("bridge: the address of the server is not one of this machine")
	case c.PTYID == "" || c.Secret == "":
		return errors.New("bridge: the credentials are incomplete")
	}
	return nil
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// reread takes the file's credentials, if they are others than those that failed.
// It reports whether there is something to try.
func (b *bridge) reread(failed protocol.MCPCredentials) bool {
	found, err := readCredentials(b.file, b.given)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.credentials != failed {
		return true // another goroutine has found others meanwhile
	}
	if err != nil || found == failed {
		return false
	}
	b.credentials = found
	return true
}

func (b *bridge) credential() protocol.MCPCredentials {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.credentials
}

// endpoint returns c's address with the terminal that asks.
func endpoint(c protocol.MCPCredentials) string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return c.URL // check has parsed it
	}
	q := u.Query()
	q.Set("pty_id", string(c.PTYID))
	u.RawQuery = q.Encode()
	return u.String()
}
