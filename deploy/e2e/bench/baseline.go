package main

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/creack/pty"
)

// baselineRole is the argument under which this program serves the baselines.
const baselineRole = "baseline"

// rawCat echoes bytes as they come, as a terminal's line would.
const rawCat = "stty raw -echo; echo ready; exec cat"

// serveBaseline serves until it is killed.
func serveBaseline() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	loop := &bareLoop{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pty", directPTY)
	mux.HandleFunc("GET /viewer", loop.join)
	mux.HandleFunc("POST /run", loop.run)
	mux.HandleFunc("POST /pace", loop.pace)
	fmt.Printf("http://%s\n", listener.Addr())
	return http.Serve(listener, mux)
}

// directPTY wires one WebSocket straight to one PTY.
func directPTY(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	cmd := exec.Command("sh", "-c", rawCat)
	tty, err := pty.Start(cmd)
	if err != nil {
		return
	}
	defer func() {
		tty.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	ctx := context.Background()
	go func() { // ends when the PTY closes
		buf := make([]byte, 32<<10)
		for {
			n, err := tty.Read(buf)
			if err != nil || conn.Write(ctx, websocket.MessageBinary, buf[:n]) != nil {
				return
			}
		}
	}()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if _, err := tty.Write(data); err != nil {
			return
		}
	}
}

// A bareLoop writes each chunk to each viewer, one write each, from one loop.
type bareLoop struct {
	mu      sync.Mutex
	viewers []net.Conn
	sent    int
}

// join upgrades a viewer by hand, so that nothing but the write is measured.
func (l *bareLoop) join(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	if rw.Flush() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.viewers = append(l.viewers, conn)
	go func() { // ends with the connection
		bufio.NewReader(conn).ReadByte()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.viewers = slices.DeleteFunc(l.viewers, func(c net.Conn) bool { return c == conn })
		conn.Close()
	}()
}

// run sends n chunks, chunksPerSecond of them, to every viewer.
func (l *bareLoop) run(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil {
		http.Error(w, "n", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tick := time.NewTicker(time.Second / chunksPerSecond)
	defer tick.Stop()
	for range n {
		<-tick.C
		if err := l.send(chunk(l.sent)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		l.sent++
	}
}

// pace sends n stamped chunks, rate per second.
func (l *bareLoop) pace(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	rate, err2 := strconv.ParseFloat(r.URL.Query().Get("rate"), 64)
	if err != nil || err2 != nil || rate <= 0 {
		http.Error(w, "n, rate", http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Now()
	for range n {
		due = due.Add(time.Duration(float64(time.Second) / rate))
		time.Sleep(time.Until(due))
		if err := l.send(stampedChunk(due)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
}

// send writes a chunk to every viewer. The caller holds mu.
func (l *bareLoop) send(chunk []byte) error {
	frame := append([]byte{0x82, 126, chunkBytes >> 8, chunkBytes & 0xff}, chunk...)
	for _, conn := range l.viewers {
		if _, err := conn.Write(frame); err != nil {
			return err
		}
	}
	return nil
}
