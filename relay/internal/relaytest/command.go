package relaytest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// An Asked is what a relay asks the control plane to sign.
type Asked struct {
	Op             json.RawMessage        `json:"op"`
	Target         protocol.CommandTarget `json:"target"`
	Grant          string                 `json:"grant"`
	IdempotencyKey string                 `json:"idempotency_key"`
}

// Asked reads a request to sign.
func (a *Authority) Asked(r *http.Request) (asked Asked) {
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		a.tb.Error(err)
	}
	return asked
}

// Envelope returns what was asked for, signed.
func (a *Authority) Envelope(asked Asked) protocol.CommandEnvelope {
	return a.Command(func(c *jws.Command) { c.Op, c.Target = asked.Op, asked.Target })
}

// Signed answers a request to sign.
func Signed(w http.ResponseWriter, env protocol.CommandEnvelope) {
	json.NewEncoder(w).Encode(map[string]any{"envelope": env})
}

// Carry accepts in, and answers its command as an agent does: with what execute
// returns. A result without a callback is lost.
func (a *Authority) Carry(in *tunnel.Incoming, execute func(*jws.Command) protocol.Result) {
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return
	}
	defer stream.Close()
	command, err := a.Keys.Command(context.Background(), in.Open.Command, jws.AudienceAgent)
	if err != nil {
		a.tb.Error(err)
		return
	}
	if result := execute(command); result.Callback != nil {
		protocol.Write(stream, result)
	}
}
