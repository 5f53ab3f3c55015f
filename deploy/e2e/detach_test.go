package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// made has alice make a terminal as body says.
func made(t testing.TB, ctx context.Context, s *Stack, body map[string]any) protocol.PTYID {
	t.Helper()
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var answer struct {
		ID protocol.PTYID `json:"id"`
	}
	must(t, call(ctx, http.StatusCreated, &answer, http.MethodPost, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, body))
	return answer.ID
}

// terminalInfo returns how a terminal stands.
func terminalInfo(t *testing.T, ctx context.Context, s *Stack, id protocol.PTYID) protocol.PTYInfo {
	t.Helper()
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var list protocol.PTYList
	must(t, call(ctx, http.StatusOK, &list, http.MethodGet, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, nil))
	i := slices.IndexFunc(list.PTYs, func(p protocol.PTYInfo) bool { return p.ID == id })
	if i < 0 {
		t.Fatalf("%s isn't listed: %+v", id, list.PTYs)
	}
	return list.PTYs[i]
}

// TestFirstByteToLastViewer: a terminal waits for its first byte, outlives relays,
// and ends with its last viewer, though its program ignores what it is told. Who
// comes later sees its last words and its end.
func TestFirstByteToLastViewer(t *testing.T) {
	ctx := within(t)
	s := own(t)
	id := made(t, ctx, s, map[string]any{
		"spawn": "lazy", "on_detach": "close",
		"command": `trap '' INT HUP; echo "begun $(stty size)"; while read line; do echo "got $line"; done; while :; do sleep 1; done`,
	})
	if info := terminalInfo(t, ctx, s, id); !info.Waiting || info.Spawn != "lazy" || info.OnDetach != "close" {
		t.Fatalf("%+v", info)
	}
	kill := func() {
		t.Helper()
		pid := s.Ready.Relays[0].PID
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		awaitRelay(ctx, t, s, 0, pid)
	}
	term := attach(t, s, "alice", id)
	must(t, term.Say(ctx, Message{"type": protocol.ClientResize, "cols": 91, "rows": 29}))
	_, err := term.ExpectMessage(ctx, protocol.ServerResized, func(m Message) bool { return m["cols"] == 91.0 })
	must(t, err)
	must(t, term.Text(ctx, "{garbage"))
	kill()
	term = attach(t, s, "alice", id)
	if info := terminalInfo(t, ctx, s, id); !info.Waiting || info.Exited != nil {
		t.Fatalf("before its first byte: %+v", info)
	}
	must(t, term.Type(ctx, "one\r"))
	must(t, term.Expect(ctx, "begun 29 91\r\n"))
	must(t, term.Expect(ctx, "got one\r\n"))
	kill()
	term = attach(t, s, "alice", id)
	must(t, term.Type(ctx, "two\r"))
	must(t, term.Expect(ctx, "got two\r\n"))

	term.Close()
	closed := time.Now()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for info := terminalInfo(t, ctx, s, id); info.Exited == nil; info = terminalInfo(t, ctx, s, id) {
		if info.Waiting {
			t.Fatalf("%+v", info)
		}
		<-poll.C
	}
	took := time.Since(closed)
	t.Logf("it was gone %v after its last socket", took.Round(time.Millisecond))
	if took < 2*time.Second {
		t.Error("it was killed early")
	}
	late := attach(t, s, "carol", id)
	must(t, late.Expect(ctx, "got two\r\n"))
	m, err := late.ExpectMessage(ctx, protocol.ServerPTYClosed, nil)
	must(t, err)
	if m["signal"] != "SIGKILL" {
		t.Errorf("%v", m)
	}
}

// BenchmarkFirstKey: from the key that starts bash in a terminal to the first byte
// of its prompt at the browser, through relay and tunnel, beside bash on a PTY from
// its start to the same. The difference of the medians is to be 40 ms at most.
func BenchmarkFirstKey(b *testing.B) {
	s, ctx := own(b), b.Context()
	alice := s.Ready.User("alice")
	var bare, lazy, echo []time.Duration
	for b.Loop() {
		took, err := promptOfBash(b)
		must(b, err)
		bare = append(bare, took)
		id := made(b, ctx, s, map[string]any{"spawn": "lazy", "on_detach": "close", "command": "PS1=prompt bash --norc"})
		term, err := alice.Attach(ctx, s.Ready.SessionID, id, "")
		must(b, err)
		_, err = term.ExpectMessage(ctx, protocol.ServerAttached, nil)
		must(b, err)
		began := time.Now()
		must(b, term.Type(ctx, "x"))
		must(b, term.Await(ctx, "a byte", func(output []byte, _ []Message, _ error) bool { return len(output) > 0 }))
		echo = append(echo, time.Since(began))
		must(b, term.Expect(ctx, "prompt"))
		lazy = append(lazy, time.Since(began))
		term.Close()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(bare, 0.5)), "bare-p50-ms")
	b.ReportMetric(millis(quantile(echo, 0.5)), "echo-p50-ms")
	b.ReportMetric(millis(quantile(lazy, 0.5)), "p50-ms")
	b.ReportMetric(millis(quantile(lazy, 0.5)-quantile(bare, 0.5)), "p50-more-ms")
}

// promptOfBash starts bash on a PTY, reads until its prompt is there, and returns
// how long that took.
func promptOfBash(b *testing.B) (took time.Duration, err error) {
	dir, began := b.TempDir(), time.Now()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	number, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return 0, err
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("bash", "--norc")
	cmd.Env, cmd.Dir = append(os.Environ(), "PS1=prompt"), dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = errors.Join(cmd.Start(), tty.Close())
	if err != nil {
		return 0, err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	var seen strings.Builder
	for buf := make([]byte, 4096); !strings.Contains(seen.String(), "prompt"); {
		n, err := f.Read(buf)
		if err != nil {
			return 0, err
		}
		seen.Write(buf[:n])
	}
	return time.Since(began), nil
}
