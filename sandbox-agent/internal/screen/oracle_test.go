package screen_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var (
	oracleStreams = flag.Int("oracle.n", 150, "how many random streams to compare with xterm.js")
	oracleSeed    = flag.Uint64("oracle.seed", 0, "seed of the random streams; 0: a new one")
	oraclePlain   = flag.Bool("oracle.plain", false, "only random streams without queries and broken sequences")
)

// A request is what happens to one of the oracle's terminals; see
// oracle/oracle.mjs.
type request struct {
	Cols       int          `json:"cols"`
	Rows       int          `json:"rows"`
	Scrollback int          `json:"scrollback"`
	Steps      []oracleStep `json:"steps"`
}

// An oracleStep is exactly one of its fields.
type oracleStep struct {
	Write    []byte  `json:"write,omitempty"`
	Resize   *[2]int `json:"resize,omitempty"` // columns, rows
	Snapshot bool    `json:"snapshot,omitempty"`
}

// A reply has a state for each snapshot before the step that xterm.js fails
// at, if there is one.
type reply struct {
	States  []json.RawMessage `json:"states"`
	Answers []string          `json:"answers"`
	Error   *struct {
		Step    int    `json:"step"`
		Message string `json:"message"`
	} `json:"error"`
}

// An oracle is a process that runs xterm.js.
type oracle struct {
	// Static after construction.
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader

	mu sync.Mutex // one conversation at a time
}

// startOracle skips the test without Node.js or the oracle's packages (npm ci
// in oracle/ installs them), which CI must have.
func startOracle(t testing.TB) *oracle {
	t.Helper()
	if testing.Short() {
		t.Skip("xterm.js")
	}
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join("oracle", "node_modules", "@xterm", "headless"))
	}
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("no oracle: %v", err)
	case err != nil:
		t.Skipf("no oracle to compare with (needs node, and npm ci in oracle/): %v", err)
	}
	o := &oracle{cmd: exec.Command(node, filepath.Join("oracle", "oracle.mjs"))}
	o.cmd.Stderr = os.Stderr
	if o.in, err = o.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	o.out = bufio.NewReaderSize(out, 1<<20)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.in.Close()
		if err := o.cmd.Wait(); err != nil {
			t.Errorf("the oracle ended: %v", err)
		}
	})
	return o
}

// ask has the oracle carry out requests, each on a terminal of its own.
func (o *oracle) ask(t testing.TB, requests ...request) []reply {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	sent := make(chan error, 1)
	go func() { // ends when all is written, at the latest with the process
		w := bufio.NewWriterSize(o.in, 1<<16)
		encoder := json.NewEncoder(w)
		for _, r := range requests {
			if err := encoder.Encode(r); err != nil {
				sent <- err
				return
			}
		}
		sent <- w.Flush()
	}()
	replies := make([]reply, len(requests))
	for i := range replies {
		line, err := o.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &replies[i])
		}
		if err != nil {
			t.Fatalf("the oracle doesn't answer: %v", err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatalf("the oracle doesn't listen: %v", err)
	}
	return replies
}
