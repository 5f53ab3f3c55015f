package gateway

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

const (
	// handshakeGUID is hashed with a handshake's key (RFC 6455).
	handshakeGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	// handshakeTime bounds writing the answer to a handshake.
	handshakeTime = 5 * time.Second
)

// Raw upgrades r, with the subprotocol that the offer asks for and no extension,
// and gives the connection to the caller, who reads and writes its frames. The
// caller has made all checks; after an error the request is answered.
func (o Offer) Raw(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	key, err := handshakeKey(r)
	if err != nil {
		w.Header().Set("Sec-WebSocket-Version", "13")
		access.WriteError(w, err)
		return nil, err
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		err = protocol.Fault(protocol.KindInternal, err)
		access.WriteError(w, err)
		return nil, err
	}
	raw := quiet.Wrap(intake.Raw(conn))
	early, _ := rw.Reader.Peek(rw.Reader.Buffered()) // can't fail
	sum := sha1.Sum([]byte(key + handshakeGUID))
	answer := w.Header().Clone() // such as a cookie
	answer.Set("Connection", "Upgrade")
	answer.Set("Upgrade", "websocket")
	answer.Set("Sec-WebSocket-Accept", base64.StdEncoding.EncodeToString(sum[:]))
	if len(o.selectable) > 0 {
		answer.Set("Sec-WebSocket-Protocol", o.selectable[0])
	}
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	answer.Write(&head)
	head.WriteString("\r\n")
	raw.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := raw.Write(head.Bytes()); err != nil {
		raw.Close()
		return nil, err
	}
	raw.SetDeadline(time.Time{})
	if len(early) == 0 {
		return raw, nil
	}
	return earlyConn{raw, io.MultiReader(bytes.NewReader(bytes.Clone(early)), raw)}, nil
}

// An earlyConn is a connection of which something was read before.
type earlyConn struct {
	net.Conn
	from io.Reader
}

func (c earlyConn) Read(p []byte) (int, error) { return c.from.Read(p) }

// handshakeKey returns the key of a client's handshake.
func handshakeKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Sec-WebSocket-Key")
	switch {
	case !r.ProtoAtLeast(1, 1) || !lists(r.Header, "Connection", "upgrade") || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		return "", protocol.Errorf(protocol.KindInvalid, "this is no request for a WebSocket")
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return "", protocol.Errorf(protocol.KindInvalid, "WebSockets of version 13 are served")
	case len(keys) != 1:
		return "", protocol.Errorf(protocol.KindInvalid, "a handshake has one key")
	}
	if raw, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(raw) != 16 {
		return "", protocol.Errorf(protocol.KindInvalid, "a handshake's key has 16 bytes")
	}
	return keys[0], nil
}

// lists reports whether a header lists a token.
func lists(h http.Header, name, token string) bool {
	for _, value := range h.Values(name) {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
