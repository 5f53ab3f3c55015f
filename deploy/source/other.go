package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	pairingTime  = 30 * time.Second
	maxPairReply = 16 << 10
)

// tailnet are the addresses that seed 004's programs listen at, beside this machine's.
var tailnet = netip.MustParsePrefix("100.64.0.0/10")

// pairOther pairs another source program with the sandbox. To that program this is the
// sink; but the key that it is told is the sandbox's, and only the sandbox has what
// belongs to it.
func (r *run) pairOther(ctx context.Context, cp *controlPlane, who config.Login, p *pairing) error {
	code, err := seal.ParseCode(p.code)
	if err != nil {
		return err
	}
	address, err := pairAddress(p.source)
	if err != nil {
		return err
	}
	var them other
	made, err := cp.pair(ctx, who.Session, p.name, func(sink protocol.SyncResult) (_ *op.SyncPair, err error) {
		them, err = askOther(ctx, address, code, sink)
		return &op.SyncPair{SourcePublicKey: them.PublicKey, SourceHostname: them.Hostname, Fingerprint: them.Fingerprint, Code: string(code)}, err
	})
	if err != nil && len(them.PublicKey) > 0 {
		return fmt.Errorf("the other program has paired, the sandbox has not: %w", err)
	}
	if err != nil {
		return err
	}
	versions := []int{seal.Version}
	if p.accept {
		versions = append(versions, seal.LaterVersion)
		if _, err := cp.run(ctx, who.Session, op.KindSyncAccept, &op.SyncAccept{Pairing: made.Pairing, Versions: versions}); err != nil {
			return fmt.Errorf("paired, but envelopes of version 2 aren't taken: %w", err)
		}
	}
	r.say(map[string]any{"pairing": made.Pairing, "fingerprint": made.Fingerprint, "url": made.URL, "peer": made.SinkHostname, "versions": versions},
		"Paired %s. Fingerprint %s: the program shows the same.\nPut this into its source.yaml:\n\nsink:\n  url: %s\npeer:\n  hostname: %s\n\nIt sends what its own policy lets pass.", them.Hostname, made.Fingerprint, made.URL, made.SinkHostname)
	return nil
}

// pairAddress returns where the other program waits. The code is all that proves who
// asks, so it travels on this machine, in a tailnet or in TLS.
func pairAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("--source is an address like http://127.0.0.1:9998/pair")
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && !loopback(u.Hostname()) && (err != nil || !tailnet.Contains(addr)) {
		return "", errors.New("--source: the code would travel in the clear: only this machine or a tailnet goes without TLS")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/pair"
	}
	return u.String(), nil
}

// An other is what the other program says when it pairs.
type other struct {
	Version     int    `json:"protocol_version"`
	PublicKey   []byte `json:"source_public_key"`
	Hostname    string `json:"source_hostname"`
	Fingerprint string `json:"fingerprint"`
}

// asOther asks the other program itself, and nobody to whom that one, or a proxy, would
// pass the code on.
var asOther = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// askOther is POST /pair of seed 004.
func askOther(ctx context.Context, address string, code seal.Code, sink protocol.SyncResult) (o other, err error) {
	body, err := json.Marshal(map[string]any{
		"protocol_version": seal.Version, "code": code, "sink_public_key": sink.SinkPublicKey, "sink_hostname": sink.SinkHostname,
	})
	if err != nil {
		return o, err
	}
	ctx, cancel := context.WithTimeout(ctx, pairingTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return o, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := asOther.Do(req)
	if err != nil {
		return o, fmt.Errorf("the other program can't be reached: %w", errors.Unwrap(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxPairReply))
	if err != nil {
		return o, err
	}
	if resp.StatusCode != http.StatusOK {
		return o, fmt.Errorf("the other program refused: %s: %.200q", resp.Status, strings.TrimSpace(string(data)))
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, errors.New("the other program answers something else than a pairing")
	}
	if o.Version != seal.Version {
		return o, fmt.Errorf("the other program pairs by version %d, and this is version %d", o.Version, seal.Version)
	}
	return o, nil
}
