package baseline

import (
	"context"
	"net/http"
	"os"
	"os/exec"

	"github.com/coder/websocket"
	"github.com/creack/pty"
)

const (
	// readBytes is how much is read from a terminal at once.
	readBytes = 32 << 10
	// maxInput bounds a message of a terminal's input, in bytes.
	maxInput = 64 << 10
)

// serveTerminal wires one WebSocket straight to one terminal.
func serveTerminal(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxInput)
	cmd := exec.Command("sh", "-c", r.URL.Query().Get("command"))
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.Start(cmd)
	if err != nil {
		conn.Close(websocket.StatusInternalError, "no terminal")
		return
	}
	output := make(chan struct{})
	defer func() {
		cmd.Process.Kill()
		tty.Close()
		<-output
		cmd.Wait()
	}()
	go func() { // ends with the terminal
		defer close(output)
		defer conn.CloseNow()
		buf := make([]byte, readBytes)
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
