package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

var (
	talkKills      = flag.Int("talk.kills", 10, "how often a relay is killed in the middle of a run")
	talkAgentKills = flag.Int("talk.agentkills", 4, "how often the agent is")
	talkSeed       = flag.Uint64("talk.seed", 0, "seed of these kills; 0: a new one")
)

// A talkChaos is one run: alice sends one message after the other from two tabs,
// bob and his other tab answer what the coding agent asks, others come and go, and
// relays are killed. These are ten sockets.
type talkChaos struct {
	t    *testing.T
	s    *Stack
	rng  *rand.Rand
	id   protocol.ConversationID
	urls []string

	alice, bob [2]*Talker // their tabs
	guests     [6]*Talker
	past       [][]Told // what those got who left
	joined     int
}

// TestTalkAcrossRelayKills: relays are killed in the middle of runs while sockets
// join and leave. Everybody's events are the log's, each message was sent once,
// each question answered once, and each run has one complete.
// It is about weakness 4 in deploy/e2e/README.md.
func TestTalkAcrossRelayKills(t *testing.T) {
	c := &talkChaos{t: t, rng: talkRandom(t, *talkKills), s: talkStack(t, "", "--relays", "2")}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience+time.Duration(*talkKills)*10*time.Second)
	defer cancel()
	for _, r := range c.s.Ready.Relays {
		c.urls = append(c.urls, r.URL)
	}
	c.id = newTalk(t, c.s, "claude")
	for tab := range 2 {
		c.alice[tab], c.bob[tab] = c.join(ctx, "alice"), c.join(ctx, "bob")
	}
	for i := range c.guests {
		c.guests[i] = c.join(ctx, "carol")
	}
	for n := range *talkKills {
		c.round(ctx, n+1)
	}
	c.verify(ctx)
}

// enter opens a talker that uses both relays, one of them first.
func (c *talkChaos) enter(ctx context.Context, user string) (*Talker, error) {
	c.joined++
	urls := slices.Clone(c.urls)
	if c.joined%2 == 0 {
		slices.Reverse(urls)
	}
	k := c.s.Ready.User(user).Talk(c.t.Context(), Talking{Session: c.s.Ready.SessionID, Relays: urls})
	c.t.Cleanup(k.Close)
	return k, k.Follow(ctx, c.id)
}

// join is enter for the test's own goroutine.
func (c *talkChaos) join(ctx context.Context, user string) *Talker {
	c.t.Helper()
	k, err := c.enter(ctx, user)
	must(c.t, err)
	return k
}

// round is one run, in the middle of which a relay is killed.
func (c *talkChaos) round(ctx context.Context, n int) {
	c.t.Helper()
	text := fmt.Sprintf("deltas:20@200\nask:Bash {\"command\":\"run %d\"}\ndeltas:20@200", n)
	name := fmt.Sprintf("message %d", n)
	done := make(chan struct{})
	var sending sync.WaitGroup
	for tab := range 2 {
		sending.Go(func() { c.insist(ctx, done, c.alice[tab], name, text) })
		sending.Go(func() { c.answer(ctx, done, c.bob[tab], n) })
	}
	guest := c.rng.IntN(len(c.guests))
	stays := time.Duration(c.rng.Int64N(int64(400 * time.Millisecond)))
	sending.Go(func() { c.moveOne(ctx, guest, stays) })
	pause(ctx, time.Duration(c.rng.Int64N(int64(400*time.Millisecond))))
	victim := c.rng.IntN(len(c.s.Ready.Relays))
	pid := c.s.Ready.Relays[victim].PID
	must(c.t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, c.t, c.s, victim, pid)
	_, err := c.bob[0].AwaitComplete(ctx, c.id, n)
	close(done)
	sending.Wait()
	must(c.t, err)
}

// moveOne has a guest leave after a while, before the kill or behind it, and
// another one come.
func (c *talkChaos) moveOne(ctx context.Context, at int, stays time.Duration) {
	pause(ctx, stays)
	k := c.guests[at]
	k.Close()
	c.past = append(c.past, k.Events(c.id))
	if k, err := c.enter(ctx, "carol"); err != nil {
		c.t.Error(err)
	} else {
		c.guests[at] = k
	}
}

// insist has a tab of alice send the same message, under one name, until the run is
// over: any of her sockets may have been lost with it.
func (c *talkChaos) insist(ctx context.Context, done <-chan struct{}, alice *Talker, name, text string) {
	every(ctx, done, 200*time.Millisecond, func() { _ = alice.Send(ctx, c.id, text, "clientMessageId", name) })
}

// every calls say, again and again, until done is closed or ctx ends.
func every(ctx context.Context, done <-chan struct{}, interval time.Duration, say func()) {
	again := time.NewTicker(interval)
	defer again.Stop()
	for {
		say()
		select {
		case <-again.C:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// answer has a tab of bob allow what is asked in the nth run, again and again.
func (c *talkChaos) answer(ctx context.Context, done <-chan struct{}, bob *Talker, n int) {
	var request string
	find := func(t *Talk) bool {
		for _, e := range t.Events {
			if e.Kind == protocol.ChatPermissionRequest && strings.Contains(string(e.Input), fmt.Sprintf(`"run %d"`, n)) {
				request = e.RequestID
			}
		}
		return request != ""
	}
	if err := bob.Await(ctx, "the question", c.id, find); err != nil {
		c.t.Error(err)
		return
	}
	every(ctx, done, 100*time.Millisecond, func() {
		_ = bob.Say(ctx, "chat.permission-response", c.id, "requestId", request, "allow", true)
	})
}

// verify compares what everybody got with the log.
func (c *talkChaos) verify(ctx context.Context) {
	c.t.Helper()
	log := c.log(ctx)
	c.judge(log)
	last := log[len(log)-1].Seq
	await := func(k *Talker) {
		must(c.t, k.Await(ctx, "the last event", c.id, func(t *Talk) bool {
			return len(t.Events) == 0 || t.Events[len(t.Events)-1].Seq == last
		}))
	}
	for i, k := range slices.Concat(c.bob[:], c.guests[:]) {
		await(k)
		c.compare(fmt.Sprintf("follower %d", i), k.Events(c.id), log)
	}
	for i, events := range c.past {
		c.compare(fmt.Sprintf("guest %d", i), events, log)
	}
	others := slices.DeleteFunc(slices.Clone(log), userText) // alice's own aren't sent to the socket that sent them
	for i, k := range c.alice {
		await(k)
		c.compare(fmt.Sprintf("tab %d", i), slices.DeleteFunc(k.Events(c.id), userText), others)
	}
	c.t.Logf("%d events, %d sockets, of which %d left", len(log), len(c.past)+10, len(c.past))
}

// judge checks the log by itself: each message was taken once, each question was
// answered once, and each run has one complete behind all of it.
func (c *talkChaos) judge(log []Told) {
	c.t.Helper()
	sent, asked, answered := map[string]int{}, map[string]int{}, map[string]int{}
	completes, running := 0, false
	for i, e := range log {
		if i > 0 && e.Seq != log[i-1].Seq+1 {
			c.t.Errorf("event %d after %d in the log", e.Seq, log[i-1].Seq)
		}
		switch {
		case userText(e):
			sent[e.ClientMessageID]++
			if running {
				c.t.Errorf("a run begins in another one: %s", e.Raw)
			}
			running = true
			continue
		case e.Kind == protocol.ChatComplete:
			completes++
			if e.Success == nil || !*e.Success {
				c.t.Errorf("%s", e.Raw)
			}
		case e.Kind == protocol.ChatPermissionRequest:
			asked[e.RequestID]++
		case e.Kind == protocol.ChatPermissionCancelled:
			answered[e.RequestID]++
			if e.Reason != protocol.CancelledDecided {
				c.t.Errorf("%s", e.Raw)
			}
		}
		if i > 0 && !running { // the log is read from its second event on
			c.t.Errorf("outside of a run: %s", e.Raw)
		}
		running = e.Kind != protocol.ChatComplete
	}
	c.once("question", asked, *talkKills)
	c.once("answer", answered, *talkKills)
	c.once("message", sent, *talkKills-1) // the first event is the first message
	if completes != *talkKills {
		c.t.Errorf("%d runs have %d completes", *talkKills, completes)
	}
}

// once checks that there are n of something, each once.
func (c *talkChaos) once(what string, seen map[string]int, n int) {
	c.t.Helper()
	if len(seen) != n {
		c.t.Errorf("%d times a %s, want %d", len(seen), what, n)
	}
	for name, times := range seen {
		if times != 1 {
			c.t.Errorf("%s %q is there %d times", what, name, times)
		}
	}
}

// compare checks that somebody's events are a part of the log without a hole.
func (c *talkChaos) compare(who string, events, log []Told) {
	c.t.Helper()
	if len(events) == 0 {
		return
	}
	at := slices.IndexFunc(log, func(e Told) bool { return e.Seq == events[0].Seq })
	if at < 0 {
		if events[0].Seq != 1 { // a subscription can't ask for the very first
			c.t.Errorf("%s begins with %s", who, events[0].Raw)
			return
		}
		at, events = 0, events[1:]
	}
	for i, e := range events {
		if at+i >= len(log) || string(log[at+i].Raw) != string(e.Raw) {
			c.t.Errorf("%s, event %d: %s", who, i, e.Raw)
			return
		}
	}
}

// log returns the conversation's log, but for its first event.
func (c *talkChaos) log(ctx context.Context) []Told {
	c.t.Helper()
	k := c.s.Ready.User("carol").Talk(c.t.Context(), Talking{Session: c.s.Ready.SessionID, Relays: c.urls})
	c.t.Cleanup(k.Close)
	must(c.t, k.chat.Follow(ctx, c.id, 1))
	must(c.t, k.Await(ctx, "the whole log", c.id, func(t *Talk) bool {
		return len(t.Acks) > 0 && len(t.Events) > 0 && t.Events[len(t.Events)-1].Seq >= t.Acks[0].LastSeq
	}))
	return k.Events(c.id)
}

// TestTalkAcrossAgentKills: the agent is killed in the middle of runs. Each has one
// complete, what a message says is done once, though it is sent again and again,
// and nothing of its program goes on.
// It is about weakness 4 in deploy/e2e/README.md.
func TestTalkAcrossAgentKills(t *testing.T) {
	rng, done := talkRandom(t, *talkAgentKills), newExecutions(t)
	s := talkStack(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*talkAgentKills)*10*time.Second)
	defer cancel()
	id, k := talks(t, s, "claude", "alice", "bob")
	alice, bob := k[0], k[1]
	agent := s.Ready.Sandboxes[0].PID
	ended := map[int]int{}
	for n := 1; n <= *talkAgentKills; n++ {
		// Every other time the agent is killed while a tool runs, which nothing else
		// would end, and otherwise at any time.
		inTool, then := n%2 == 1, ""
		if inTool {
			then = "; sleep 300"
		}
		over := make(chan struct{})
		var sending sync.WaitGroup
		sending.Go(func() {
			text := "deltas:10@100\ntool:" + done.tool(n, "sent", then) + "\ndeltas:20@100"
			every(ctx, over, 200*time.Millisecond, func() { _ = alice.Send(ctx, id, text, "clientMessageId", fmt.Sprintf("message %d", n)) })
		})
		sending.Go(func() { allowAll(ctx, over, bob, id, n) })
		if inTool {
			await(t, "the tool", func() bool { return done.of(n) != "" })
			if len(leftovers(t, s)) == 0 {
				t.Fatal("nothing of a coding agent runs")
			}
		} else {
			// Often at once: then the message's command is just under way.
			pause(ctx, time.Duration(rng.Int64N(int64(500*time.Millisecond)>>rng.IntN(8))))
		}
		agent = restartAgent(t, agent)
		complete, err := bob.AwaitComplete(ctx, id, n)
		close(over)
		sending.Wait()
		must(t, err)
		ended[*complete.ExitCode]++
		if *complete.Aborted || *complete.Success != (*complete.ExitCode == 0) || *complete.ExitCode > 1 || inTool && *complete.Success {
			t.Errorf("%s", complete.Raw)
		}
		if did := done.of(n); did != "sent" && (did != "" || *complete.Success) {
			t.Errorf("run %d: the coding agent has done %q: %s", n, did, complete.Raw)
		}
		if !*complete.Success {
			await(t, "the end of what was started", func() bool { return len(leftovers(t, s)) == 0 })
		}
	}
	must(t, alice.Send(ctx, id, "say:back"))
	complete, err := bob.AwaitComplete(ctx, id, *talkAgentKills+1)
	must(t, err)
	if !*complete.Success {
		t.Errorf("%s", complete.Raw)
	}
	oneEach(t, bob.Events(id), *talkAgentKills+1)
	t.Logf("runs by exit code: %v", ended)
}

// oneEach checks that of so many runs each has one complete and another message,
// and that no event is missing.
func oneEach(t *testing.T, events []Told, runs int) {
	t.Helper()
	sent := map[string]int{}
	for i, e := range events {
		if i > 0 && e.Seq != events[i-1].Seq+1 {
			t.Errorf("event %d after %d", e.Seq, events[i-1].Seq)
		}
		if userText(e) {
			sent[*e.Content]++
		}
	}
	if n := strings.Count(kindsOfAll(events), string(protocol.ChatComplete)); n != runs || len(sent) != n || total(sent) != n {
		t.Errorf("%d runs: %d completes, %v", runs, n, sent)
	}
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// talkRandom returns what decides a test's course, and logs how to repeat it.
func talkRandom(t *testing.T, kills int) *rand.Rand {
	t.Helper()
	seed := *talkSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-talk.seed=%d, %d kills", seed, kills)
	return rand.New(rand.NewPCG(seed, 1))
}

// executions is a folder where coding agents' tools note what they do.
type executions string

func newExecutions(t *testing.T) executions {
	t.Helper()
	dir, err := os.MkdirTemp(openTemp, tempName())
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	return executions(dir)
}

// tool returns the input of a tool that notes what it does in the nth run, and
// what follows then.
func (e executions) tool(n int, what, then string) string {
	return fmt.Sprintf(`Bash {"command":"echo %s >> %s%s"}`, what, filepath.Join(string(e), fmt.Sprintf("run-%d.", n)), then)
}

// of returns what was done in the nth run.
func (e executions) of(n int) string {
	data, _ := os.ReadFile(filepath.Join(string(e), fmt.Sprintf("run-%d.", n))) // none: nothing
	return strings.Join(strings.Fields(string(data)), " ")
}

// allowAll has somebody allow what is asked in the nth run, again and again.
func allowAll(ctx context.Context, done <-chan struct{}, k *Talker, id protocol.ConversationID, n int) {
	every(ctx, done, 100*time.Millisecond, func() {
		for _, e := range k.Events(id) {
			if e.Kind == protocol.ChatPermissionRequest && strings.Contains(string(e.Input), fmt.Sprintf("/run-%d.", n)) {
				_ = k.Say(ctx, "chat.permission-response", id, "requestId", e.RequestID, "allow", true)
			}
		}
	})
}

func kindsOfAll(events []Told) string {
	var all []string
	for _, e := range events {
		all = append(all, string(e.Kind))
	}
	return strings.Join(all, " ")
}

// restartAgent kills an agent, starts it again as it was started, and returns the
// new process.
func restartAgent(t *testing.T, pid int) int {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	must(t, err)
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	cmd, output := runAgent(t, args[1:]...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent:\n%s", output)
		}
	})
	return cmd.Process.Pid
}

// leftovers returns the processes that stand-ins for coding agents, or what they
// have started, are.
func leftovers(t *testing.T, s *Stack) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	must(t, err)
	for _, path := range all {
		environ, err := os.ReadFile(path)
		ours := strings.Contains(string(environ), "FAIRLEAD_SESSION_ID="+string(s.Ready.SessionID))
		if err == nil && ours && !strings.Contains(string(environ), string(s.Ready.PTYID)) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}
