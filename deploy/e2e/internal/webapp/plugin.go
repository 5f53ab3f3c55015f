package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// mebibyte is what a plugin sends and takes for a measurement, in one message.
var mebibyte = make([]byte, 1<<20)

// plugin is the WebSocket of a plugin. It sends back what it gets, but does what a
// text says that is a word of it.
func plugin(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(int64(2 * len(mebibyte)))
	for {
		kind, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		word, rest, _ := strings.Cut(string(data[:min(len(data), 64)]), " ")
		number, _ := strconv.Atoi(rest)
		switch {
		case kind == websocket.MessageText && word == "headers":
			data, _ = json.Marshal(slices.Sorted(maps.Keys(r.Header)))
		case kind == websocket.MessageText && word == "close":
			conn.Close(websocket.StatusCode(number), "as asked")
			return
		case kind == websocket.MessageText && word == "die":
			os.Exit(1)
		case kind == websocket.MessageText && word == "send":
			for range number {
				if conn.Write(r.Context(), websocket.MessageBinary, mebibyte) != nil {
					return
				}
			}
			continue
		case kind == websocket.MessageText && word == "take":
			if take(r.Context(), conn, number) != nil {
				return
			}
			data = []byte("taken")
		}
		if conn.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

// take reads a number of messages and drops them.
func take(ctx context.Context, conn *websocket.Conn, number int) error {
	for range number {
		_, message, err := conn.Reader(ctx)
		if err == nil {
			_, err = io.Copy(io.Discard, message)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
