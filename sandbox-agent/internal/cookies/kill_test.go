package cookies

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

var (
	kills    = flag.Int("kills", 10, "processes that TestKilled and TestKilledInGap kill each")
	killSeed = flag.Uint64("seed", 0, "of TestKilled and TestHostileRelay; 0: another each time")
)

const (
	// childDir is set for a process that TestKilled starts, and kills.
	childDir = "FAIRLEAD_TEST_COOKIES"
	// killSequences is how many envelopes each child is sent, the same ones each time.
	killSequences = 4000
)

var killSecret = strings.Repeat("secret", 6)

// A tellingChromium tells the parent of what it is given.
type tellingChromium struct{}

func (tellingChromium) SetCookies(_ context.Context, _ protocol.SessionID, cookies []seal.Cookie) (map[int]string, error) {
	for _, c := range cookies {
		fmt.Println("set", c.Name)
	}
	return nil, nil
}

func (tellingChromium) RemoveCookies(context.Context, protocol.SessionID, []seal.CookieID) error {
	return nil
}

// runChild sends a sink the same envelopes as any child before it.
func runChild(dir string) {
	sink, err := Open(Options{Dir: dir, Sandbox: sandbox, Chromium: tellingChromium{}, Isolated: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := range killSequences {
		pushNumbered(sink, i)
	}
}

// pushNumbered sends a sink the envelope that has a sequence and a cookie of that name,
// and tells the parent what it answers.
func pushNumbered(sink *Sink, i int) {
	key, err := seal.SharedKey(killSecret)
	if err != nil {
		os.Exit(1)
	}
	e := seal.Envelope{Version: 1, SourceHostname: "host", Sequence: int64(i), Cookies: []seal.Cookie{{HostKey: "a.test", Name: fmt.Sprint(i), Path: "/", SameSite: -1}}}
	plain, err := e.Encode()
	if err != nil {
		os.Exit(1)
	}
	w := httptest.NewRecorder()
	sink.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, sink.pairingsOf(sid)[0].URL, bytes.NewReader(key.Seal(plain))))
	fmt.Println(w.Code, i)
}

// TestKilled kills process after process with SIGKILL, each of which gets the same
// envelopes: none is written twice, and what was answered with 200 is kept.
func TestKilled(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d -kills %d", seed, *kills)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t)
	r.share(killSecret)
	set, taken := map[string]int{}, map[string]int{}
	for range *kills {
		killedChild(t, r.o.Dir, 1+random.IntN(40), func(line string) {
			switch what, name, _ := strings.Cut(line, " "); what {
			case "set":
				set[name]++
			case "200":
				taken[name]++
			case "409":
			default:
				t.Errorf("a child says %q", line)
			}
		})
	}
	r.reopen()
	kept := map[string]bool{}
	for _, c := range r.Kept(sid) {
		kept[c.Name] = true
	}
	for name, n := range set {
		if n != 1 {
			t.Errorf("%s was written %d times", name, n)
		}
		if !kept[name] {
			t.Errorf("%s was written and isn't kept", name)
		}
	}
	for name, n := range taken {
		if n != 1 || !kept[name] {
			t.Errorf("%s was answered with 200 %d times, kept: %v", name, n, kept[name])
		}
	}
	if len(set) == 0 || len(taken) == 0 {
		t.Error("nothing was taken")
	}
	t.Logf("%d were written, %d answered", len(set), len(taken))
	if leftover, err := filepath.Glob(filepath.Join(r.dirOf(sid), "*", ".*")); err != nil || len(leftover) > 0 {
		t.Errorf("halves of files are left: %v, %v", leftover, err)
	}
}

// killedChild starts a child and kills it once it has told of so many envelopes that it
// has written.
func killedChild(t *testing.T, dir string, after int, told func(line string)) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for after > 0 && lines.Scan() {
		told(lines.Text())
		if strings.HasPrefix(lines.Text(), "set ") {
			after--
		}
	}
	if err := child.Process.Kill(); err != nil && !strings.Contains(err.Error(), "finished") {
		t.Error(err)
	}
	for lines.Scan() {
		told(lines.Text())
	}
	if err := child.Wait(); err != nil && child.ProcessState.ExitCode() > 0 {
		t.Fatal(err)
	}
}
