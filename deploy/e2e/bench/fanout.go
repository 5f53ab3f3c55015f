package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/e2e"
)

const (
	chunkBytes      = 1024
	chunksPerSecond = 40
	blockChunks     = 120 // 3 s
	// fanoutBound is how much more CPU per delivered chunk than a bare write
	// loop the relay may take.
	fanoutBound = 1.25
)

// chunk returns the i-th chunk, which generator makes too.
func chunk(i int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%08d", i), chunkBytes/8))
}

// generator is the terminal's program: for each number that it reads it
// writes so many chunks at the set pace.
const generator = `stty raw -echo; exec perl -e '$| = 1; print "ready"; my $i = 0; use Time::HiRes qw(time sleep);
while (my $n = <STDIN>) { my $next = time; for (1..$n) { $next += 1/40; my $wait = $next - time; sleep($wait) if $wait > 0;
syswrite(STDOUT, sprintf("%08d", $i++) x 128); } }'`

// A crowd is a number of sockets that watch the same bytes.
type crowd struct {
	conns []*websocket.Conn
	next  int // first chunk of the next block
}

// measureFanout measures CPU per delivered chunk, relay beside bare loop.
func measureFanout(ctx context.Context, stack *e2e.Stack, base *baseline, viewers int) ([]*figure, error) {
	alice, bob := stack.Ready.User("alice"), stack.Ready.User("bob")
	id, err := stack.NewPTY(ctx, alice, generator)
	if err != nil {
		return nil, err
	}
	driver, err := alice.Attach(ctx, stack.Ready.SessionID, id, "")
	if err != nil {
		return nil, err
	}
	defer driver.Close()
	if err := driver.Expect(ctx, "ready"); err != nil {
		return nil, err
	}
	ours, bare := &crowd{}, &crowd{}
	defer ours.close()
	defer bare.close()
	for range viewers {
		conn, err := attach(ctx, stack, bob, id)
		if err != nil {
			return nil, err
		}
		ours.conns = append(ours.conns, conn)
		if err := awaitReady(ctx, conn); err != nil {
			return nil, err
		}
		if conn, _, err = websocket.Dial(ctx, strings.Replace(base.url, "http", "ws", 1)+"/viewer", nil); err != nil {
			return nil, err
		}
		bare.conns = append(bare.conns, conn)
	}
	runOurs := func() error { return driver.Type(ctx, strconv.Itoa(blockChunks)+"\n") }
	runBare := base.sendBlock
	relayPID, barePID := stack.Ready.Relays[0].PID, base.cmd.Process.Pid
	if _, err := ours.block(ctx, relayPID, runOurs); err != nil { // warm up
		return nil, err
	}
	if _, err := bare.block(ctx, barePID, runBare); err != nil {
		return nil, err
	}
	f := &figure{name: fmt.Sprintf("fan-out CPU, %d viewers", viewers), bound: fanoutBound}
	for i := 0; i < blocks || i < maxBlocks && !f.decided(); i++ {
		a, err := bare.block(ctx, barePID, runBare)
		if err != nil {
			return nil, err
		}
		b, err := ours.block(ctx, relayPID, runOurs)
		if err != nil {
			return nil, err
		}
		f.add(float64(b) / float64(a))
		fmt.Fprintf(os.Stderr, "fan-out block %d: bare loop %v, relay %v per delivered chunk\n", i+1, a, b)
	}
	return []*figure{f}, nil
}

// sendBlock has the bare loop send one block.
func (b *baseline) sendBlock() error {
	resp, err := http.Post(b.url+"/run?n="+strconv.Itoa(blockChunks), "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("baseline: %s", body)
	}
	return nil
}

// block has run send one block, checks that every viewer got every byte of it,
// and returns the CPU time of process pid per delivered chunk.
func (c *crowd) block(ctx context.Context, pid int, run func() error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	want := sha256.New()
	for i := range blockChunks {
		want.Write(chunk(c.next + i))
	}
	c.next += blockChunks
	digest := [sha256.Size]byte(want.Sum(nil))
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	failures := make(chan error, len(c.conns)+1)
	var reading sync.WaitGroup
	for _, conn := range c.conns {
		reading.Go(func() { failures <- readBlock(ctx, conn, digest) })
	}
	failures <- run()
	reading.Wait()
	close(failures)
	var all error
	for err := range failures {
		all = errors.Join(all, err)
	}
	after, err := cpuTime(pid)
	if all = errors.Join(all, err); all != nil {
		return 0, all
	}
	return (after - before) / time.Duration(blockChunks*len(c.conns)), nil
}

// readBlock reads one block's bytes and compares their digest.
func readBlock(ctx context.Context, conn *websocket.Conn, want [sha256.Size]byte) error {
	sum := sha256.New()
	for got := 0; got < blockChunks*chunkBytes; {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", got, err)
		}
		if kind == websocket.MessageBinary {
			sum.Write(data)
			got += len(data)
		}
	}
	if [sha256.Size]byte(sum.Sum(nil)) != want {
		return errors.New("a viewer got other bytes")
	}
	return nil
}

func (c *crowd) close() {
	for _, conn := range c.conns {
		conn.CloseNow()
	}
}

// cpuTime returns the time that all threads of a process have run so far.
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no threads of process %d", pid)
	}
	var total time.Duration
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has just ended
		}
		running, _, _ := strings.Cut(string(data), " ")
		n, err := strconv.ParseInt(running, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(n)
	}
	return total, nil
}
