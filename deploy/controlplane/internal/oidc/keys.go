package oidc

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/fairlead/fairlead/protocol/jws"
)

// uniqueKids is a transport under which no two keys of a provider's key set have
// the same kid: the library would try them all.
type uniqueKids struct{ next limited }

// RoundTrip implements [http.RoundTripper].
func (u uniqueKids) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := u.next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusOK {
		return res, err
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys json.RawMessage `json:"keys"` // in any case, as the library reads it
	}
	if json.Unmarshal(body, &set) == nil && set.Keys != nil {
		if body, err = jws.WithoutSharedKids(body); err != nil {
			return nil, err
		}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Del("Content-Length")
	return res, nil
}

// CloseIdleConnections makes [http.Client.CloseIdleConnections] reach the transport.
func (u uniqueKids) CloseIdleConnections() { u.next.CloseIdleConnections() }
