package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

const (
	// channel is where chunks are published.
	channel = "chunks"
	// publishEvery is how often the API is called at most, with all that has become
	// due since then, so that Centrifugo isn't kept busy by requests. It is as long
	// as fairlead's agent waits for more output before it sends.
	publishEvery = 2 * time.Millisecond
	// maxBatch bounds the chunks of a call.
	maxBatch = 256
	// subscribeWait bounds the wait for subscribers.
	subscribeWait = 20 * time.Second
	// maxAnswer bounds an answer of the API, in bytes.
	maxAnswer = 1 << 20
)

// ViewerURL is the WebSocket of Centrifugo's viewers, which [Subscribers] serves.
func (p *Peer) ViewerURL() string {
	return "ws" + strings.TrimPrefix(p.URL, "http") + "/connection/websocket"
}

// Publish publishes the stream of spec, each chunk when it is due, or a moment
// later together with those that are due then.
func (p *Peer) Publish(ctx context.Context, spec pattern.Spec) error {
	var body, chunk []byte
	for k := 0; k < spec.Chunks; {
		if err := pause.Until(ctx, spec.Due(k)); err != nil {
			return err
		}
		began := time.Now()
		body = append(body[:0], `{"commands":[`...)
		for first := k; k < spec.Chunks && k-first < maxBatch && !spec.Due(k).After(began); k++ {
			if k > first {
				body = append(body, ',')
			}
			chunk = spec.Append(chunk[:0], k)
			body = appendPublish(body, chunk)
		}
		var answer struct {
			Replies []struct{ Error *apiError }
		}
		if err := p.call(ctx, "batch", append(body, "]}"...), &answer); err != nil {
			return err
		}
		for _, r := range answer.Replies {
			if r.Error != nil {
				return r.Error
			}
		}
		if err := pause.Until(ctx, began.Add(publishEvery)); err != nil {
			return err
		}
	}
	return nil
}

// lineEnd is what ends a chunk, as JSON has it. Nothing else of a chunk has to be
// escaped.
const lineEnd = `\r\n`

// appendPublish appends the command that publishes a chunk.
func appendPublish(dst, chunk []byte) []byte {
	dst = append(dst, `{"publish":{"channel":"`+channel+`","data":"`...)
	dst = append(dst, bytes.TrimSuffix(chunk, []byte("\r\n"))...)
	return append(dst, lineEnd+`"}}`...)
}

// AwaitSubscribers waits until so many subscribe.
func (p *Peer) AwaitSubscribers(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	for {
		var answer struct {
			Error  *apiError
			Result struct {
				Channels map[string]struct {
					Clients int `json:"num_clients"`
				}
			}
		}
		err := p.call(ctx, "channels", []byte(`{"pattern":"`+channel+`"}`), &answer)
		switch {
		case err != nil:
			return err
		case answer.Error != nil:
			return answer.Error
		case answer.Result.Channels[channel].Clients >= n:
			return nil
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d viewers subscribe to Centrifugo: %w", answer.Result.Channels[channel].Clients, n, err)
		}
	}
}

// An apiError is one of Centrifugo's.
type apiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) Error() string { return fmt.Sprintf("centrifugo: %d %s", e.Code, e.Message) }

// call calls a method of the API.
func (p *Peer) call(ctx context.Context, method string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/api/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", p.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("centrifugo: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("centrifugo: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("centrifugo: %s: %.200s", resp.Status, bytes.TrimSpace(data))
	}
	return json.Unmarshal(data, answer)
}

// Subscribers serves connections to Centrifugo by those of by, for viewers who
// take them for bare WebSockets: it subscribes, and gives them the data of each
// publication as a binary message.
func Subscribers(by client.Transport) client.Transport { return subscribers{by} }

type subscribers struct{ by client.Transport }

// Adopt implements [client.Transport].
func (s subscribers) Adopt(conn *net.TCPConn, to client.Receiver) (client.Link, error) {
	one := &subscriber{to: to}
	link, err := s.by.Adopt(conn, one)
	one.Link = link
	return one, err
}

// A subscriber stands between a connection and a viewer.
type subscriber struct {
	client.Link
	to client.Receiver

	// Owned by who calls the receiver.
	frames frames
	out    []byte // what the viewer gets of the present input
}

// subscription is what Centrifugo is told first.
const subscription = `{"id":1,"connect":{}}` + "\n" + `{"id":2,"subscribe":{"channel":"` + channel + `"}}`

// Begin implements [client.Link].
func (s *subscriber) Begin(early []byte) error {
	if err := s.Write(clientFrame(opText, []byte(subscription))); err != nil {
		return err
	}
	return s.Link.Begin(early)
}

// Received implements [client.Receiver].
func (s *subscriber) Received(p []byte, at time.Time) error {
	s.out = s.out[:0]
	if err := s.frames.feed(p, s.frame); err != nil || len(s.out) == 0 {
		return err
	}
	return s.to.Received(s.out, at)
}

func (s *subscriber) frame(opcode byte, payload []byte) error {
	switch opcode {
	case opPing:
		return s.Write(clientFrame(opPong, payload))
	case opClose:
		return fmt.Errorf("%w: %q", errEnd, payload[min(2, len(payload)):])
	}
	for len(payload) > 0 {
		line, rest, _ := bytes.Cut(payload, []byte("\n"))
		if err := s.line(line); err != nil {
			return err
		}
		payload = rest
	}
	return nil
}

// A publication as Centrifugo writes it.
var (
	beforeData = []byte(`{"push":{"channel":"` + channel + `","pub":{"data":"`)
	afterData  = []byte(lineEnd + `"}}}`)
)

// line takes one message. Chunks are taken out of it without a look at each byte:
// the viewer compares them with what was published.
func (s *subscriber) line(line []byte) error {
	data, begins := bytes.CutPrefix(line, beforeData)
	data, ends := bytes.CutSuffix(data, afterData)
	if begins && ends {
		s.give(data, "\r\n")
		return nil
	}
	if string(line) == "{}" { // a ping, which wants the same
		return s.Write(clientFrame(opText, line))
	}
	var m struct {
		Error *apiError
		Push  struct {
			Pub *struct{ Data string }
		}
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("centrifugo sent what is no JSON: %w", err)
	}
	switch {
	case m.Error != nil:
		return m.Error
	case m.Push.Pub != nil:
		s.give([]byte(m.Push.Pub.Data), "")
	}
	return nil
}

// give adds a message for the viewer.
func (s *subscriber) give(data []byte, end string) {
	s.out = append(appendHead(s.out, opBinary, len(data)+len(end)), data...)
	s.out = append(s.out, end...)
}

// Swept implements [client.Receiver].
func (s *subscriber) Swept(at time.Time) { s.to.Swept(at) }

// Ended implements [client.Receiver].
func (s *subscriber) Ended(why error) {
	if why == nil {
		why = errors.New("centrifugo: the socket ended")
	}
	s.to.Ended(why)
}
