package chatapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

// putTimeout bounds the time for putting one message into the sandbox.
const putTimeout = 30 * time.Second

// maxPutAnswer bounds what is read of the sandbox's answer, in bytes.
const maxPutAnswer = 4 << 10

// putMessage puts a message's JSON into the sandbox, where the command for it finds
// it by its SHA-256.
func (a *API) putMessage(
	ctx context.Context, grant *jws.Grant, token string, session protocol.SessionID, body *op.ChatSend, message []byte,
) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	under, err := a.Tunnels.Session(grant.Sandbox)
	if err != nil {
		return err
	}
	path := "/sessions/" + string(session) + "/chats/" + string(body.Conversation) + "/messages/" + body.MessageSHA256
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+reverseproxy.Host+path, bytes.NewReader(message))
	if err != nil {
		return protocol.Fault(protocol.KindInvalid, err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "")
	r.Close = true
	stream, _, err := under.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	if err := r.Write(stream); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(stream, maxPutAnswer), r)
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, maxPutAnswer))
		return protocol.Fault(protocol.KindByStatus(answer.StatusCode), errors.New(string(text)))
	}
	return nil
}
