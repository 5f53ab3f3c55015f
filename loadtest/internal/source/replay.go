package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxEvent bounds one event of a recording, in bytes.
const maxEvent = 1 << 20

// A piece is output that came at a time after the beginning.
type piece struct {
	after time.Duration
	text  []byte
}

// A recording yields pieces in order, and then io.EOF.
type recording func() (piece, error)

// replay writes a recording with the pauses that it has.
func (m *Machine) replay(ctx context.Context, files []string) error {
	f, err := os.Open(files[0])
	if err != nil {
		return discreet(err)
	}
	defer f.Close()
	next, err := asciicast(f)
	if len(files) == 2 {
		var timing *os.File
		if timing, err = os.Open(files[1]); err != nil {
			return discreet(err)
		}
		defer timing.Close()
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			next = typescript(f, timing)
		}
	}
	if err != nil {
		return err
	}
	start := time.Now()
	for {
		p, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := m.sleepUntil(ctx, start.Add(p.after)); err != nil {
			return err
		}
		if _, err := m.out.Write(p.text); err != nil {
			return err
		}
	}
}

// discreet keeps a path out of an error that is written to a terminal.
func discreet(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// seconds returns the duration of a number of seconds in a recording.
func seconds(n float64) (time.Duration, error) {
	if !(n >= 0 && n < 1e6) {
		return 0, fmt.Errorf("a time of %v s", n)
	}
	return time.Duration(n * float64(time.Second)), nil
}

// asciicast reads the output in an asciicast of version 2.
func asciicast(r io.Reader) (recording, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var head struct {
		Version int `json:"version"`
	}
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &head) != nil || head.Version != 2 {
		return nil, errors.New("not an asciicast of version 2; another recording needs its timing")
	}
	return func() (piece, error) {
		for lines.Scan() {
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			var event [3]json.RawMessage
			var at float64
			var kind, text string
			err := json.Unmarshal(lines.Bytes(), &event)
			if err == nil {
				err = errors.Join(json.Unmarshal(event[0], &at), json.Unmarshal(event[1], &kind))
			}
			if err != nil {
				return piece{}, errors.New("a line that is no event")
			}
			if kind != "o" {
				continue
			}
			if err := json.Unmarshal(event[2], &text); err != nil {
				return piece{}, errors.New("output that is no text")
			}
			after, err := seconds(at)
			return piece{after, []byte(text)}, err
		}
		if err := lines.Err(); err != nil {
			return piece{}, err
		}
		return piece{}, io.EOF
	}, nil
}

// typescript reads raw output with lines of timing: seconds since the piece
// before, and its length in bytes.
func typescript(raw, timing io.Reader) recording {
	text, lines := bufio.NewReader(raw), bufio.NewScanner(timing)
	var at time.Duration
	return func() (piece, error) {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return piece{}, err
			}
			return piece{}, io.EOF
		}
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 {
			return piece{}, errors.New("a line of timing that is none")
		}
		pause, err1 := strconv.ParseFloat(fields[0], 64)
		n, err2 := strconv.Atoi(fields[1])
		wait, err3 := seconds(pause)
		if errors.Join(err1, err2, err3) != nil || n < 0 || n > maxEvent {
			return piece{}, errors.New("a line of timing that is none")
		}
		at += wait
		p := piece{at, make([]byte, n)}
		if _, err := io.ReadFull(text, p.text); err != nil {
			return piece{}, errors.New("the timing is longer than the output")
		}
		return p, nil
	}
}
