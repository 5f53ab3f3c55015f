package baseline

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// writeBytes is how much is given to a connection at once.
	writeBytes = 64 << 10
	// payloadBytes is the period of what is sent. It shares no factor with any
	// size of a packet, frame or buffer, so that a piece that is missing shows.
	payloadBytes = 65521
	// answerTimeout is how long the last bytes may take.
	answerTimeout = 30 * time.Second
)

// A Transfer is what came of bytes that were sent for a while, as fast as they
// were taken.
type Transfer struct {
	Sent     int64         // bytes
	Received int64         // bytes, by the other process
	Took     time.Duration // from the first to the last byte there
	Corrupt  bool          // what came isn't what was sent
}

// Rate returns the throughput in bytes per second.
func (t Transfer) Rate() float64 {
	if t.Took <= 0 {
		return 0
	}
	return float64(t.Received) / t.Took.Seconds()
}

// received is what the other process says of one stream, in a line of JSON.
type received struct {
	Bytes   int64 `json:"bytes"`
	First   int64 `json:"first"` // Unix nanoseconds
	Last    int64 `json:"last"`
	Corrupt bool  `json:"corrupt"`
}

// A halfCloser is a connection that says where the bytes end.
type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// payload returns what is sent, with enough of its repetition behind it that a
// write can begin anywhere.
var payload = sync.OnceValue(func() []byte {
	b := make([]byte, payloadBytes)
	random := rand.NewPCG(1, 2)
	for i := range b {
		b[i] = byte(random.Uint64())
	}
	return append(b, append(bytes.Clone(b), b...)...)
})

// transfer sends on every connection for the time of d and adds up what the
// other end says.
func transfer(ctx context.Context, conns []halfCloser, d time.Duration) (Transfer, error) {
	until := time.Now().Add(d)
	sent, answers, errs := make([]int64, len(conns)), make([]received, len(conns)), make([]error, len(conns))
	var sending sync.WaitGroup
	for i, c := range conns {
		sending.Go(func() { sent[i], answers[i], errs[i] = send(ctx, c, until) })
	}
	sending.Wait()
	var t Transfer
	var first, last int64
	for i, a := range answers {
		t.Sent += sent[i]
		t.Received += a.Bytes
		t.Corrupt = t.Corrupt || a.Corrupt
		if i == 0 || a.First < first {
			first = a.First
		}
		last = max(last, a.Last)
	}
	t.Took = time.Duration(last - first)
	return t, errors.Join(errs...)
}

// send writes to one connection and waits for the answer.
func send(ctx context.Context, c halfCloser, until time.Time) (int64, received, error) {
	var sent int64
	for data := payload(); time.Now().Before(until) && ctx.Err() == nil; {
		n, err := c.Write(data[sent%payloadBytes:][:writeBytes])
		sent += int64(n)
		if err != nil {
			return sent, received{}, fmt.Errorf("sending: %w", err)
		}
	}
	if err := c.CloseWrite(); err != nil {
		return sent, received{}, fmt.Errorf("sending: %w", err)
	}
	var answer received
	line, err := bufio.NewReader(io.LimitReader(c, maxAnswer)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err != nil {
		return sent, answer, fmt.Errorf("what the other end says: %w", err)
	}
	return sent, answer, ctx.Err()
}

// drain reads a connection to its end, compares, and says what came.
func drain(c io.ReadWriter) error {
	var got received
	buf, want := make([]byte, writeBytes), payload()
	for {
		n, err := c.Read(buf)
		if n > 0 {
			now := time.Now().UnixNano()
			if got.Bytes == 0 {
				got.First = now
			}
			got.Last = now
			got.Corrupt = got.Corrupt || !bytes.Equal(buf[:n], want[got.Bytes%payloadBytes:][:n])
			got.Bytes += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return json.NewEncoder(c).Encode(got)
		}
		if err != nil {
			return err
		}
	}
}
