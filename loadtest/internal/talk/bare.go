package talk

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
)

// ClaudeFlags start Claude Code's program, or a stand-in, as the agent does.
const ClaudeFlags = " -p --input-format stream-json --output-format stream-json --verbose --include-partial-messages --replay-user-messages --permission-prompt-tool stdio"

// A Bare is a program wired straight to a WebSocket.
type Bare struct {
	conn *websocket.Conn
	rec  *measure.Recorder
}

// DialBare starts a program behind a WebSocket. It measures direct_first and
// direct_line.
func DialBare(ctx context.Context, url string, rec *measure.Recorder) (*Bare, error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(1 << 20)
	b := &Bare{conn, rec}
	return b, b.write(ctx, map[string]any{"type": "control_request", "request_id": "1", "request": map[string]any{"subtype": "initialize", "hooks": nil}})
}

// Close ends the program.
func (b *Bare) Close() { b.conn.CloseNow() }

func (b *Bare) write(ctx context.Context, line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return b.conn.Write(ctx, websocket.MessageText, data)
}

// Say sends a message and waits for the end of its turn.
func (b *Bare) Say(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, Wait)
	defer cancel()
	sent := time.Now()
	err := b.write(ctx, map[string]any{
		"type": "user", "uuid": string(protocol.NewCommandID()), "session_id": "", "parent_tool_use_id": nil,
		"message": map[string]any{"role": "user", "content": text},
	})
	for first := true; err == nil; {
		var data []byte
		if _, data, err = b.conn.Read(ctx); err != nil {
			break
		}
		at := time.Now()
		var line struct {
			Type  string `json:"type"`
			Event struct {
				Delta struct {
					Text string `json:"text"`
				} `json:"delta"`
			} `json:"event"`
		}
		if json.Unmarshal(data, &line) != nil {
			return errors.New("chat: the program printed no JSON")
		}
		if line.Type == "result" {
			return nil
		}
		w, ok := parseWord(line.Event.Delta.Text)
		if !ok {
			continue
		}
		if first {
			b.rec.Latency("direct_first").Record(sent, at)
			first = false
		}
		b.rec.Latency("direct_line").Record(w.at, at)
	}
	return err
}
