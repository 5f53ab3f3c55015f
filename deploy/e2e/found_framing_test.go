package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listeners returns the TCP ports on loopback at which a process listens.
func listeners(t *testing.T, pid int) (ports []int) {
	t.Helper()
	sockets := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	must(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			sockets[strings.Trim(to, "socket:[]")] = true
		}
	}
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	must(t, err)
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != "0A" || !sockets[fields[9]] { // 0A: it listens
			continue
		}
		_, port, _ := strings.Cut(fields[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		must(t, err)
		ports = append(ports, int(n))
	}
	return ports
}

// converse opens a connection, sends text, and returns what comes back until the
// other side ends it.
func converse(t *testing.T, port int, secured bool, text string) (string, error) {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if secured {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// A statusLine begins an answer, wherever the one before it ended.
var statusLine = regexp.MustCompile(`HTTP/1\.[01] (\d\d\d) [A-Z]`)

// ambiguous are requests that two programs could take for different ones, each
// with another behind it that nobody may serve. What they are for doesn't matter.
func ambiguous(host string) map[string]string {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: HOST\r\n\r\n"
	list := map[string]string{
		"both":                "POST /grants HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"both, turned about":  "POST /grants HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
		"in other letters":    "POST /grants HTTP/1.1\r\nHost: HOST\r\ncontent-LENGTH:6\r\ntransfer-ENCODING:chunked\r\n\r\n0\r\n\r\n",
		"folded":              "POST /grants HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		"two encodings":       "POST /grants HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an encoding of 1.0":  "POST /grants HTTP/1.0\r\nHost: HOST\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"on a kept one":       "GET /kept HTTP/1.1\r\nHost: HOST\r\n\r\nPOST /grants HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths, 6 or 6": "POST /grants HTTP/1.1\r\nHost: HOST\r\nContent-Length: 6\r\nContent-Length: 6\r\n\r\n0\r\n\r\n\n",
	}
	for name, text := range list {
		list[name] = strings.ReplaceAll(text+smuggled, "HOST", host)
	}
	return list
}

// TestFound07ContentLengthBesideTransferEncoding: on each TCP listener of each
// program, whoever it is for, a request of two lengths gets 400 as its
// connection's last answer.
func TestFound07ContentLengthBesideTransferEncoding(t *testing.T) {
	s := shared(t)
	programs := map[string]int{
		"relay": s.Ready.Relays[0].PID, "control plane": s.Ready.ControlPlane.PID, "agent": s.Ready.Sandboxes[0].PID,
	}
	for program, pid := range programs {
		ports := listeners(t, pid)
		if len(ports) < 2 {
			t.Errorf("%s: only %d listeners seen", program, len(ports))
		}
		for _, port := range ports {
			secured := speaksTLS(t, port)
			for name, text := range ambiguous("127.0.0.1:" + strconv.Itoa(port)) {
				answer, err := converse(t, port, secured, text)
				if err != nil {
					t.Fatalf("%s, port %d, %s: %d answers, then %v", program, port, name, len(statusLine.FindAllString(answer, -1)), err)
				}
				found := statusLine.FindAllStringSubmatch(answer, -1)
				var statuses []string
				for _, line := range found {
					statuses = append(statuses, line[1])
				}
				if name == "on a kept one" && len(statuses) > 0 {
					statuses = statuses[1:] // the first request is a good one, after which not all keep the connection
				} else if len(statuses) == 0 {
					t.Errorf("%s, port %d, %s: no answer: %q", program, port, name, answer)
				}
				for i, status := range statuses {
					if i > 0 || status != "400" && status != "501" { // 501: an encoding that the listener doesn't know
						t.Errorf("%s, port %d, %s: answers %q", program, port, name, statuses)
						break
					}
				}
			}
		}
	}
}

// speaksTLS reports whether a listener shakes hands.
func speaksTLS(t *testing.T, port int) bool {
	t.Helper()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp",
		net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		conn.Close()
	}
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	if err != nil && !plain && !errors.Is(err, io.EOF) {
		t.Logf("port %d: %v", port, err)
	}
	return err == nil
}

// TestFound07KeepsWhatIsClear: requests after each other on one connection, and a
// body without a length, which ends its connection, are served as ever.
func TestFound07KeepsWhatIsClear(t *testing.T) {
	s := shared(t)
	host := strings.TrimPrefix(s.Ready.Relays[0].URL, "http://")
	conn, err := net.Dial("tcp", host)
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	reader := bufio.NewReader(conn)
	for i := range 3 {
		fmt.Fprintf(conn, "POST /grants HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\n{}", host)
		if status := answerOf(t, reader); status != 401 {
			t.Errorf("request %d: %d", i, status)
		}
	}
	fmt.Fprintf(conn, "POST /grants HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", host)
	if status := answerOf(t, reader); status != 401 {
		t.Errorf("a body without a length: %d", status)
	}
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v", rest, err)
	}
}

// answerOf reads an answer and returns its status.
func answerOf(t *testing.T, reader *bufio.Reader) int {
	t.Helper()
	answer, err := readResponse(reader)
	must(t, err)
	return answer
}

func readResponse(reader *bufio.Reader) (int, error) {
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}
