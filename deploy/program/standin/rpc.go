package standin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// peer is a program's side of a JSON-RPC connection whose messages are lines.
type peer struct {
	// Static after construction.
	p       *process
	version string // value of the member "jsonrpc"; "": without it

	last  atomic.Int64 // id of a question, and 1
	asked questions    // by id
}

// A called is a call or a notification of the other side's.
type called struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func newPeer(p *process, version string) *peer {
	return &peer{p: p, version: version}
}

func (r *peer) print(m map[string]any) {
	if r.version != "" {
		m["jsonrpc"] = r.version
	}
	r.p.print(m)
}

func (r *peer) notify(method string, params any) {
	r.print(map[string]any{"method": method, "params": params})
}

func (r *peer) reply(id json.RawMessage, result any) {
	r.print(map[string]any{"id": id, "result": result})
}

func (r *peer) refuse(id json.RawMessage, code int, text string) {
	r.print(map[string]any{"id": id, "error": map[string]any{"code": code, "message": text}})
}

// read gives each call to take, until the input ends.
func (r *peer) read(take func(called)) {
	lines := bufio.NewReaderSize(r.p.in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		var c called
		switch {
		case json.Unmarshal(line, &c) != nil:
		case c.Method != "":
			take(c)
		default:
			r.asked.answer(string(c.ID), c.Result) // an error is one without a result
		}
		if err != nil {
			r.asked.close()
			return
		}
	}
}

// ask asks the other side and waits for its answer: for giveUp, unless that is 0.
// It returns errWithdrawn when that is over, and the id of the question.
func (r *peer) ask(ctx context.Context, method string, params any, giveUp time.Duration) (id int64, result json.RawMessage, err error) {
	id = r.last.Add(1) - 1
	key := strconv.FormatInt(id, 10)
	answer := r.asked.open(key)
	r.print(map[string]any{"id": id, "method": method, "params": params})
	var over <-chan time.Time
	if giveUp > 0 {
		over = time.After(giveUp)
	}
	select {
	case result, ok := <-answer:
		if !ok {
			return id, nil, &refusal{"nobody answers"}
		}
		return id, result, nil
	case <-over:
		err = errWithdrawn
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.asked.forget(key)
	return id, nil, err
}

// A stage performs one message after the other, each on a goroutine of its own,
// while whoever has it goes on to read. Between two messages whoever has it waits
// for busy, and then owns what the voice has.
type stage struct {
	p    *process
	ctx  context.Context // ends with a signal
	deaf atomic.Bool     // it no longer obeys an abort
	busy sync.WaitGroup

	mu   sync.Mutex
	stop chan struct{} // closed to abort what is performed; nil: nothing is; guarded by mu
}

// perform performs a message and calls end with what came of it: nil, ctx's
// error after an abort, or *failed. It doesn't wait for that.
func (g *stage) perform(v voice, text string, said []string, images []int, end func(error)) {
	ctx, cancel := context.WithCancel(g.ctx)
	stop := make(chan struct{})
	g.mu.Lock()
	g.stop = stop
	g.mu.Unlock()
	g.busy.Go(func() {
		defer cancel()
		select {
		case <-stop:
		case <-ctx.Done():
		}
	})
	g.busy.Go(func() {
		s := &show{p: g.p, v: v, said: said, images: images, deaf: &g.deaf}
		err := s.perform(ctx, text)
		if e, ends := errors.AsType[*exit](err); ends {
			os.Exit(e.status)
		}
		cancel()
		end(err)
	})
}

// abort ends what is performed.
func (g *stage) abort() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil && !g.deaf.Load() {
		close(g.stop)
		g.stop = nil
	}
}

// members returns the members of a JSON object.
func members(raw json.RawMessage) map[string]any {
	var m map[string]any
	_ = json.Unmarshal(raw, &m) // what is no object has none
	return m
}

// word returns a member that is a string.
func word(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

// appendJSON appends a value to a file, as a line.
func appendJSON(p *process, path string, v any) {
	line, err := json.Marshal(v)
	if err == nil {
		err = appendFile(path, append(line, '\n'))
	}
	if err != nil {
		_, _ = p.err.Write([]byte("transcript: " + err.Error() + "\n"))
	}
}

// rows reads a file of lines of JSON.
func rows(path string, take func(row map[string]any)) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if m := members(lines.Bytes()); m != nil {
			take(m)
		}
	}
	return lines.Err()
}

// size returns how many bytes a file has; 0: there is none.
func size(path string) int {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return int(st.Size())
}
