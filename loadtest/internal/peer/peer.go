// Package peer has programs of others do what fairlead does, to be measured
// beside it: ttyd, which wires a terminal to a WebSocket, and Centrifugo, which
// sends what is published to all who subscribe. Scripts in loadtest/peers start
// them; nothing of theirs is here but the few messages that they take and send.
package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
)

// Names of peers, in the files that their scripts write.
const (
	TTYD       = "ttyd"
	Centrifugo = "centrifugo"
)

// startWait bounds the wait for a peer that its script has just started.
const startWait = 10 * time.Second

// maxFile bounds the file that describes a peer, in bytes.
const maxFile = 4 << 10

// A Peer is one that runs.
type Peer struct {
	Name string `json:"name"`
	URL  string `json:"url"` // http://host:port
	Key  string `json:"key"` // who doesn't know it can't use the peer
}

// Load reads the file that a peer's script wrote, which must be of the one called
// name.
func Load(file, name string) (*Peer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := new(Peer)
	if len(data) > maxFile || json.Unmarshal(data, p) != nil {
		return nil, fmt.Errorf("%s doesn't describe a peer", file)
	}
	if u, err := url.Parse(p.URL); err != nil || u.Scheme != "http" || u.Port() == "" || p.Key == "" {
		return nil, fmt.Errorf("%s lacks the address of a peer (http://host:port) or its key", file)
	}
	if p.Name != name {
		return nil, fmt.Errorf("%s is of %q: what can be beside this scenario is %s", file, p.Name, name)
	}
	return p, nil
}

// Await waits until the peer takes connections.
func (p *Peer) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	u, err := url.Parse(p.URL)
	for err == nil {
		var conn net.Conn
		if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", u.Host); err == nil {
			return conn.Close()
		}
		if pause.For(ctx, 20*time.Millisecond) == nil {
			err = nil
		}
	}
	return fmt.Errorf("%s isn't there: %w", p.Name, err)
}
