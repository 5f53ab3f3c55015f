package chat

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/op"
)

// TestRun: a message, what the coding agent says, and one complete; then the next
// one, by the same process.
// It is about weaknesses 5 and 6 in deploy/e2e/README.md.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		p := r.begins("hello")
		e := v.event(protocol.ChatText)
		if *e.Content != "hello" || e.Role != "user" || e.From.UserID != alice || e.From.Name != "Name" || e.From.GrantID == "" || e.ClientMessageID != "own name" || e.CommandID == "" || e.Seq != 1 || e.SessionID != r.id {
			t.Errorf("%+v", e)
		}
		if v.state.Run != protocol.RunRunning || v.state.BeganAt != e.Seq || v.state.CommandID != e.CommandID || v.state.UserID != alice || v.state.ClientMessageID != "own name" {
			t.Errorf("%+v", v.state)
		}
		if err := r.sends(alice, "too early"); code(err) != "RUN_IN_PROGRESS" {
			t.Error(err)
		}
		p.print("native n-1", "delta a", "delta b", "end", "text ab", "done 0", "text late")
		for _, kind := range []protocol.ChatKind{protocol.ChatStreamDelta, protocol.ChatStreamDelta, protocol.ChatStreamEnd, protocol.ChatText} {
			v.event(kind)
		}
		v.completes(0, false)
		synctest.Wait() // until what is late is read: a program doesn't say of which turn it is
		check(t, r.sends(alice, "again"))
		p.hear(t, "send again")
		if e := v.event(protocol.ChatText); *e.Content != "again" {
			t.Errorf("something followed complete: %s", *e.Content)
		}
		p.print("error there is no n-1", "done 3") // the program's own name of the session
		if e := v.event(protocol.ChatError); *e.Content != "there is no "+string(r.id) {
			t.Error(*e.Content)
		}
		v.completes(3, false)
		if info, _ := r.Get(session, r.id); info.Native != "n-1" {
			t.Errorf("%+v", info)
		}
		if _, known := r.ByNative(session, "scripted", "n-1"); !known {
			t.Error("not found by its provider's id")
		}
	})
}

// silence is less than a test's patience.
const silence = 30 * time.Second

// TestEnds: however a run ends, it has one complete, and nothing of it runs.
// It is about weaknesses 5 and 25 in deploy/e2e/README.md.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		play    func(r *rig, p *played)
		before  []protocol.ChatKind
		says    string
		exit    int
		aborted bool
	}{
		"crash":   {func(_ *rig, p *played) { p.quit(9, "segfault") }, []protocol.ChatKind{protocol.ChatError}, "segfault", 9, false},
		"silence": {func(*rig, *played) {}, []protocol.ChatKind{protocol.ChatError}, "printed nothing for 30s", 1, false},
		"last":    {func(_ *rig, p *played) { p.print("text x", "last 0") }, []protocol.ChatKind{protocol.ChatText}, "x", 0, false},
		"abort": {func(r *rig, p *played) {
			check(r.t, r.aborts(alice))
			p.hear(r.t, "abort")
			p.print("text stopped", "done 1")
		}, []protocol.ChatKind{protocol.ChatText}, "stopped", 0, true},
		"abort, deaf": {func(r *rig, p *played) {
			check(r.t, r.aborts(alice))
			check(r.t, r.aborts(alice))
		}, nil, "", 0, true},
		"abort, stubborn": {func(r *rig, p *played) {
			p.stubborn = true
			check(r.t, r.aborts(alice))
			time.Sleep(interruptFor)
			synctest.Wait()
			p.quit(0, "")
		}, nil, "", 1, true},
		"abort while it fails": {func(r *rig, p *played) {
			p.deafen()
			time.Sleep(silence)
			<-p.ends
			check(r.t, r.aborts(alice))
			p.quit(1, "")
		}, []protocol.ChatKind{protocol.ChatError}, "printed nothing", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(o *Options) { o.Silence = silence })
				v, p := r.follows()
				c.play(r, p)
				said := ""
				for _, kind := range c.before {
					said += *v.event(kind).Content
				}
				if !strings.Contains(said, c.says) {
					t.Errorf("says %q", said)
				}
				v.completes(c.exit, c.aborted)
				synctest.Wait()
				if n := len(r.Running(session)); n != 0 {
					t.Errorf("%d run", n)
				}
				if _, err := r.Get(session, r.id); err == nil && !strings.HasPrefix(name, "abort, stub") {
					check(t, r.sends(alice, "next")) // a new process
					p = r.started()
					p.hear(t, "begin")
					p.print("done 0")
				}
			})
		})
	}
}

// TestTimersOfAnEarlierRun: what an earlier run was waiting for when it ended, be it
// an answer, the end of its turn or its program's next line, ends no later one.
// It is about weakness 25 in deploy/e2e/README.md.
func TestTimersOfAnEarlierRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Silence = silence })
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		p := r.begins("one")
		v.event(protocol.ChatText)
		p.print(`ask q1 Bash {}`)
		asked := v.event(protocol.ChatPermissionRequest)
		time.Sleep(DefaultPatience - time.Second)
		check(t, r.aborts(alice))
		v.cancelledAs(protocol.CancelledWith, asked)
		p.hear(t, "abort")
		p.print("done 0")
		v.completes(0, true)
		begun := time.Now()
		q := r.begins("two")
		v.event(protocol.ChatText)
		q.print(`ask q1 Bash {}`) // of the same name
		asked = v.event(protocol.ChatPermissionRequest)
		v.cancelledAs(protocol.CancelledTimeout, asked)
		if took := time.Since(begun); took != DefaultPatience {
			t.Errorf("asked for %v", took)
		}
		q.hear(t, "answer q1 false Permission request timed out")
		v.fails("printed nothing")
		if took := time.Since(begun); took != DefaultPatience+silence {
			t.Errorf("ended after %v", took)
		}
	})
}

// TestTwoAtOnce: what two coding agents say at the same time comes to those who
// follow their conversations, whichever was begun last.
// It is about weakness 24 in deploy/e2e/README.md.
func TestTwoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		type talk struct {
			id protocol.ConversationID
			p  *played
			v  *viewer
		}
		var talks [2]talk
		for i := range talks {
			talks[i].id = r.make()
			talks[i].v = r.view(bob, protocol.ChatParams{})
			talks[i].p = r.begins("go")
			talks[i].v.event(protocol.ChatText)
		}
		for round := range 3 {
			for i, c := range talks {
				c.p.print(fmt.Sprintf("text %d of %d", round, i))
			}
		}
		talks[0].p.print("done 0")
		talks[1].p.print("done 7")
		for i, c := range talks {
			for round := range 3 {
				e := c.v.event(protocol.ChatText)
				if want := fmt.Sprintf("%d of %d", round, i); *e.Content != want || e.SessionID != c.id || e.Seq != uint64(2+round) {
					t.Errorf("%s in %s as %d, want %s in %s", *e.Content, e.SessionID, e.Seq, want, c.id)
				}
			}
			c.v.completes(7*i, false)
		}
	})
}

// TestRemember: what became of a message whose command's outcome a crash took, its
// conversation's log says.
func TestRemember(t *testing.T) {
	r := newRig(t)
	r.make()
	remember := func(command protocol.CommandID) (protocol.OpResult, error, bool) {
		c := r.command(alice)
		c.CommandID, c.IssuedAt = command, time.Now().UnixMilli()
		return r.Remember(c, &op.ChatSend{Conversation: r.id})
	}
	p := r.begins("hello")
	sent := protocol.CommandID(fmt.Sprintf("cmd_%d", r.commands))
	if result, err, known := remember(sent); !known || err != nil || result.ConversationID != r.id {
		t.Errorf("a message that was sent: %+v, %v, %t", result, err, known)
	}
	if _, err, known := remember("cmd_lost"); !known || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("a message that wasn't: %v, %t", err, known)
	}
	if _, _, known := r.Remember(r.command(alice), &op.ChatAbort{Conversation: r.id}); known {
		t.Error("it knows of an abort")
	}
	if _, _, known := r.Remember(r.command(alice), &op.ChatSend{Conversation: "gone"}); known {
		t.Error("it knows of a conversation that isn't there")
	}
	p.print("done 0")
}

// TestAbortBySignal: a process that can't stop its turn is ended at once.
func TestAbortBySignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		r.begins("go", op.ChatOptions{Model: unstoppable})
		v.event(protocol.ChatText)
		began := time.Now()
		check(t, r.aborts(alice))
		v.completes(0, true)
		if took := time.Since(began); took >= interruptFor {
			t.Errorf("after %v", took)
		}
	})
}

// TestSessionEnds: with a session its runs end, and nothing is left of its
// conversations.
func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		p := r.begins("go")
		check(t, r.SessionEnded(session))
		<-p.exit
		if _, err := r.Get(session, r.id); code(err) != "SESSION_NOT_FOUND" {
			t.Error(err)
		}
		if _, err := os.Stat(r.folder(r.id)); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
}

// TestMissing: a program that isn't there is an error with how to get it, and a
// complete.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.programs.missing = protocol.Errorf(protocol.KindUnsupported, "scripted isn't installed: npm install it")
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		check(t, r.sends(alice, "go"))
		v.event(protocol.ChatText)
		v.fails("npm install it")
	})
}

// TestAbortEarly: a run whose process is still starting is aborted, too.
func TestAbortEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		check(t, r.sends(alice, "go"))
		check(t, r.aborts(alice))
		v.event(protocol.ChatText)
		v.completes(0, true)
		if err := r.aborts(alice); code(err) != "NO_ACTIVE_RUN" {
			t.Error(err)
		}
	})
}

// TestRefused: what keeps a message from being sent, in the order of the issue.
// It is about weaknesses 7 and 8 in deploy/e2e/README.md.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxRuns = 1 })
		first := r.make()
		p := r.begins("go")
		r.make()
		says := func(err error, code protocol.ChatCode) { // as the relay does
			t.Helper()
			if want := chatsocket.NewFault(code, string(r.id)).Error().Message; err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		says(r.sends(alice, "one too many"), protocol.ChatTooManyRuns)
		second := r.id
		r.id = first
		says(r.sends(bob, "mine"), protocol.ChatNotController)
		says(r.aborts(bob), protocol.ChatNotController)
		says(r.sends(alice, "another"), protocol.ChatRunInProgress)
		p.print("native n-1", "done 0")
		synctest.Wait()
		r.programs.mu.Lock()
		r.programs.resumed = "n-1"
		r.programs.mu.Unlock()
		if err := r.sends(alice, "in a terminal"); code(err) != "RUN_IN_PROGRESS" {
			t.Error(err)
		}
		r.programs.mu.Lock()
		r.programs.resumed = ""
		r.programs.mu.Unlock()
		for _, cwd := range []string{"/etc", "..", "/../etc"} {
			if err := r.sends(alice, "x", op.ChatOptions{Cwd: cwd}); code(err) != "FORBIDDEN" {
				t.Error(cwd, err)
			}
		}
		if err := r.sends(alice, "x", op.ChatOptions{Cwd: "nowhere"}); code(err) != "INTERNAL_ERROR" {
			t.Error(err)
		}
		r.id = second
		if err := r.sends(alice, "x", op.ChatOptions{PermissionMode: "lacking"}); code(err) != "INTERNAL_ERROR" || !strings.Contains(err.Error(), "no mode lacking") {
			t.Error(err)
		}
		check(t, r.sends(alice, "the first run is over")) // and what was refused is none
		r.started()
		r.id = "unknown"
		if err := r.sends(alice, "x"); code(err) != "SESSION_NOT_FOUND" || protocol.KindOf(err) != protocol.KindNotFound {
			t.Error(err)
		}
	})
}

// TestWarm: a process waits for another message for some time, and only so many
// do; one that doesn't fit is ended first. No signal ends one that leaves when its
// input ends.
func TestWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxWarm = 1 })
		a := r.make()
		p := r.begins("one")
		p.print("done 0")
		synctest.Wait() // it waits before b's does
		b := r.make()
		q := r.begins("two")
		q.print("done 0")
		<-p.ends // b's waits
		r.id = a
		s := r.begins("three")
		s.print("done 0")
		<-q.ends
		check(t, r.sends(alice, "four", op.ChatOptions{Model: "another"}))
		<-s.ends
		u := r.started()
		u.hear(t, "begin")
		u.print("done 0")
		synctest.Wait()
		begun := time.Now()
		<-u.ends
		if waited := time.Since(begun); waited != DefaultWarmFor {
			t.Errorf("waited %v", waited)
		}
		if p.killed || q.killed || !s.killed || u.killed {
			t.Error(p.killed, q.killed, s.killed, u.killed)
		}
		r.id = b
		w := r.begins("five")
		w.mu.Lock()
		w.stale = true
		w.mu.Unlock()
		w.print("done 0")
		<-w.ends
	})
}

// TestManyLeave: of programs that nobody needs any more only a few end at the same
// time, each within its time. One that a message waits for is ended at once.
func TestManyLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxWarm = -1 })
		all := map[protocol.ConversationID]*played{}
		for range 3 * leaveAtOnce {
			r.make()
			p := r.begins("one")
			p.deafen()
			all[r.id] = p
		}
		begun := time.Now()
		for _, p := range all {
			p.print("done 0")
		}
		synctest.Wait()
		for id, p := range all {
			if at, _ := p.leaving(); at.IsZero() {
				r.id = id
			}
		}
		waits := all[r.id]
		delete(all, r.id)
		check(t, r.sends(alice, "two"))
		synctest.Wait()
		if at, killed := waits.leaving(); !at.IsZero() || !killed {
			t.Errorf("its input ended at %v, killed %t", at, killed)
		}
		waits.quit(130, "")
		r.started().hear(t, "begin")
		for _, p := range all {
			<-p.ends
			p.quit(130, "")
		}
		told := map[time.Duration]int{} // to leave
		for _, p := range all {
			at, _ := p.leaving()
			told[at.Sub(begun)]++
		}
		if told[0] != leaveAtOnce || told[leaveFor] != leaveAtOnce || told[2*leaveFor] != leaveAtOnce-1 {
			t.Errorf("they were told to leave after %v", told)
		}
	})
}

// TestStays: a process that doesn't leave when its input ends is signalled, at once
// when a message waits for that.
func TestStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxWarm = -1 })
		r.make()
		stays := func(text string) *played {
			p := r.begins(text)
			p.deafen()
			p.print("done 0")
			synctest.Wait()
			return p
		}
		begun := time.Now()
		p := stays("one")
		<-p.ends
		if waited := time.Since(begun); waited != leaveFor || !p.killed {
			t.Errorf("waited %v, %t", waited, p.killed)
		}
		p.quit(130, "")
		p = stays("two")
		begun = time.Now()
		check(t, r.sends(alice, "three"))
		<-p.ends
		if waited := time.Since(begun); waited != 0 || !p.killed {
			t.Errorf("waited %v, %t", waited, p.killed)
		}
		p.quit(130, "")
		r.started().hear(t, "begin")
	})
}
