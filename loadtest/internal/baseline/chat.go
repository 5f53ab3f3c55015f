package baseline

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"

	"github.com/coder/websocket"
)

// maxLine bounds a line of a coding agent's program, in bytes.
const maxLine = 1 << 20

// ChatURL is a WebSocket (ws://) wired to the pipes of command, started under sh:
// a text message is a line of its input, and each line of its output is one.
func (s *Server) ChatURL(command string) string {
	return "ws" + strings.TrimPrefix(s.at.URL, "http") + "/chat?command=" + url.QueryEscape(command)
}

// serveChat wires one WebSocket to the pipes of one program.
func serveChat(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxLine)
	cmd := exec.Command("sh", "-c", r.URL.Query().Get("command"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		conn.Close(websocket.StatusInternalError, "no program")
		return
	}
	output := make(chan struct{})
	defer func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-output
		cmd.Wait()
	}()
	go func() { // ends with the program
		defer close(output)
		defer conn.CloseNow()
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			if conn.Write(ctx, websocket.MessageText, lines.Bytes()) != nil {
				return
			}
		}
	}()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if _, err := stdin.Write(append(data, '\n')); err != nil {
			return
		}
	}
}
