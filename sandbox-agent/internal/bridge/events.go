package bridge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

var errEventTooLong = errors.New("an event of the server's is too long")

// A cursor is where a stream of events ended.
type cursor struct {
	id    string        // of the last event that had one: the stream can be resumed behind it
	retry time.Duration // that the server wants to pass before; 0: it hasn't said
}

// readEvents calls each with the data of r's events until it returns true, and
// keeps at where they are. It returns io.EOF when the stream ends. Data is valid
// until the next one. Over limit bytes are an error.
func readEvents(r io.Reader, limit int, at *cursor, each func(data []byte) (done bool)) error {
	in := bufio.NewReaderSize(r, 32<<10)
	var data []byte
	var begun bool
	for {
		text, over, err := readLine(in, limit)
		if over || len(data) > limit {
			return errEventTooLong
		}
		if err != nil {
			return err // what has no end isn't an event
		}
		text = bytes.TrimSuffix(text, []byte("\r"))
		if len(text) == 0 {
			if begun && len(data) > 0 && each(data) {
				return nil
			}
			data, begun = nil, false
			continue
		}
		name, value, _ := bytes.Cut(text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if begun {
				data = append(data, '\n')
			}
			data, begun = append(data, value...), true
		case "id":
			if !bytes.ContainsRune(value, 0) {
				at.id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				at.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}
