package standin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Hook()
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for a stand-in: only a hang reaches it.
const patience = time.Minute

func TestParseScript(t *testing.T) {
	for _, c := range []struct {
		message string
		want    string
	}{
		{"", ""},
		{"hello", "say|You said: hello"},
		{"say:a: b\r\n\nrecall", "say|a: b recall|"},
		{"deltas:5@2.5/40", "deltas|5@2.5/40 5 2.5 40"},
		{"deltas:5", "deltas|5 5 0 0"},
		{"deltas:-1", "say|You said: deltas:-1"},
		{"deltas:5@0", "say|You said: deltas:5@0"},
		{"deltas:5@NaN", "say|You said: deltas:5@NaN"},
		{"huge", "huge|"},
		{"huge:x", "say|You said: huge:x"},
		{`tool:Bash {"command":"a:b"}`, `tool|Bash {"command":"a:b"}`},
		{"tool:Bash {", "say|You said: tool:Bash {"},
		{"tool:", "say|You said: tool:"},
		{"sleep:50ms", "sleep|50ms"},
		{"sleep:soon", "say|You said: sleep:soon"},
		{"crash", "crash|"},
		{"crash:now", "say|You said: crash:now"},
		{"say", "say|You said: say"},
		{"exit:3", "exit|3"},
	} {
		var got []string
		for _, s := range parseScript(c.message) {
			word := s.name + "|" + s.text
			if s.name == "deltas" {
				word += fmt.Sprintf(" %d %v %d", s.count, s.rate, s.size)
			}
			got = append(got, word)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, want %q", c.message, got, c.want)
		}
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("say:x\ndeltas:1@1e308/9\ntool:X {}\nsleep:1h\nhuge:99999999999")
	f.Fuzz(func(t *testing.T, message string) {
		for _, s := range parseScript(message) {
			if s.count < 0 || s.rate < 0 || s.size < 0 || s.input != nil && !json.Valid(s.input) {
				t.Errorf("%q: %+v", message, s)
			}
		}
	})
}

// TestInstall starts each program by its name, in a folder with a name that
// shells must be told literally.
func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's $HOME")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self")
	if err := os.Symlink(os.Args[0], self); err != nil {
		t.Fatal(err)
	}
	if err := Install(dir, self, Role); err != nil {
		t.Fatal(err)
	}
	for _, name := range Programs() {
		output, err := exec.Command(filepath.Join(dir, name), "--version").CombinedOutput()
		if err != nil || len(bytes.TrimSpace(output)) == 0 {
			t.Errorf("%s --version: %v: %s", name, err, output)
		}
	}
	if output, err := exec.Command(os.Args[0], Role, "nobody").CombinedOutput(); err == nil {
		t.Errorf("a program that it can't stand in for: %s", output)
	}
}

// A talker is a running claude.
type talker struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	home  string
	limit *time.Timer
}

func startClaude(t testing.TB, home string, args ...string) *talker {
	t.Helper()
	args = append([]string{Role, "claude", "-p"}, args...)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &talker{t: t, cmd: cmd, in: in, out: bufio.NewReader(out), home: home}
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it may have ended
	k.limit = time.AfterFunc(patience, kill)
	t.Cleanup(func() {
		k.limit.Stop()
		kill()
		_ = cmd.Wait() // it was killed
	})
	return k
}

func (k *talker) write(line string) {
	k.t.Helper()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		k.t.Fatal(err)
	}
}

// say sends a message.
func (k *talker) say(id, script string) {
	line, err := json.Marshal(map[string]any{"type": "user", "uuid": id, "message": map[string]any{"role": "user", "content": script}})
	if err != nil {
		k.t.Fatal(err)
	}
	k.write(string(line))
}

// until reads lines until one contains text, and returns all of them.
func (k *talker) until(text string) (lines []string) {
	k.t.Helper()
	for {
		line, err := k.out.ReadString('\n')
		lines = append(lines, line)
		if strings.Contains(line, text) {
			return lines
		}
		if err != nil {
			k.t.Fatalf("%v before %s, after %q", err, text, lines)
		}
	}
}

// TestResumed: a conversation is known to the next process, by its id alone.
func TestResumed(t *testing.T) {
	home := t.TempDir()
	first := startClaude(t, home)
	first.say("1", "say:the word is heron")
	var result struct {
		SessionID string `json:"session_id"`
	}
	lines := first.until(`"type":"result"`)
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &result); err != nil {
		t.Fatal(err)
	}
	second := startClaude(t, home, "--resume", result.SessionID)
	second.say("2", "recall")
	if lines := second.until(`"type":"result"`); !strings.Contains(lines[len(lines)-1], "heron") {
		t.Errorf("it says %s", lines[len(lines)-1])
	}
	third := startClaude(t, home, "--resume", "00000000-0000-4000-8000-000000000000")
	if _, err := third.out.ReadString('\n'); err != io.EOF {
		t.Errorf("a session that isn't there: %v", err)
	}
	if err := third.cmd.Wait(); err == nil {
		t.Error("a session that isn't there is resumed")
	}
}

// TestEndOfInput: it ends by itself, a question that is open is denied, and a
// silent one stays.
func TestEndOfInput(t *testing.T) {
	k := startClaude(t, t.TempDir())
	k.say("1", `ask:Bash {"command":"true"}`)
	k.until("can_use_tool")
	_ = k.in.Close() // of a pipe
	k.until(`"is_error":true`)
	k.until(`"type":"result"`)
	if err := k.cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	silent := startClaude(t, t.TempDir())
	silent.say("1", "say:now\nsilent")
	silent.until(`"type":"assistant"`)
	_ = silent.in.Close()                          // of a pipe
	_ = silent.cmd.Process.Signal(syscall.SIGTERM) // it doesn't ignore that
	if _, err := io.ReadAll(silent.out); err != nil {
		t.Error(err)
	}
	if err := silent.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "143") {
		t.Errorf("it ends with %v", err)
	}
}

// TestIgnores: what ignores signals and aborts goes on until it is killed.
func TestIgnores(t *testing.T) {
	k := startClaude(t, t.TempDir())
	k.say("1", "ignore-int\nsay:deaf\nsleep:50ms\nsay:still here")
	k.until(`"text":"deaf"`)
	_ = k.cmd.Process.Signal(os.Interrupt) // a process that runs
	_ = k.cmd.Process.Signal(syscall.SIGTERM)
	k.write(`{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}`)
	lines := k.until(`"type":"result"`)
	if !strings.Contains(lines[len(lines)-1], "still here") {
		t.Errorf("it says %s", lines[len(lines)-1])
	}
}

// TestForks: what forks is gone at once, and its child holds the output until it
// is killed as well.
func TestForks(t *testing.T) {
	k := startClaude(t, t.TempDir())
	k.say("1", "fork")
	if state, err := k.cmd.Process.Wait(); err != nil || state.ExitCode() != 0 {
		t.Errorf("it ends with %v, %v", state, err)
	}
	if err := syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Errorf("nothing is left in its group: %v", err)
	}
	if _, err := io.ReadAll(k.out); err != nil {
		t.Error(err)
	}
}

// TestOwnTurn: later begins a turn that nobody has asked for.
func TestOwnTurn(t *testing.T) {
	k := startClaude(t, t.TempDir())
	k.say("1", "later:1ms\nsay:first")
	k.until(`"type":"result"`)
	lines := k.until(`"type":"result"`)
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, `"subtype":"init"`) }) {
		t.Errorf("its own turn: %q", lines)
	}
}

// BenchmarkFirstEvent is the time from a message on standard input to the first
// piece of the answer.
func BenchmarkFirstEvent(b *testing.B) {
	k := startClaude(b, b.TempDir())
	k.say("0", "say:x")
	k.until(`"type":"result"`)
	var spent []time.Duration
	for b.Loop() {
		began := time.Now()
		k.say("1", "say:x")
		k.until("text_delta")
		spent = append(spent, time.Since(began))
		k.until(`"type":"result"`)
	}
	slices.Sort(spent)
	b.ReportMetric(float64(spent[len(spent)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(spent[len(spent)*99/100].Microseconds()), "p99-µs")
}
