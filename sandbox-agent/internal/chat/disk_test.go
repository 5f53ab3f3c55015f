package chat

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
)

// disk returns what has the conversation's log not be stored any more, and what
// undoes that.
func (r *rig) disk() (full, room func()) {
	folder := r.folder(r.id)
	full = func() {
		o, err := r.acquire(r.id)
		check(r.t, err)
		o.do(func() { o.log.Live(false) }) // it opens its file anew
		r.release(o)
		check(r.t, os.Rename(folder, folder+".away"))
		check(r.t, os.WriteFile(folder, nil, 0o600))
	}
	return full, func() {
		check(r.t, os.Remove(folder))
		check(r.t, os.Rename(folder+".away", folder))
	}
}

// TestDisk: a disk that doesn't do refuses a message, and ends a run, which is
// said once, as soon as it can be stored; until then nothing else runs.
func TestDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		v, p := r.follows()
		full, room := r.disk()
		full()
		p.print("text lost")
		<-p.exit
		synctest.Wait()
		if err := r.sends(alice, "again"); code(err) != "RUN_IN_PROGRESS" {
			t.Error(err)
		}
		room()
		v.fails("can't be stored")
		full()
		if err := r.sends(alice, "again"); code(err) != "UNAVAILABLE" || v.state.Run != protocol.RunIdle {
			t.Error(err, v.state)
		}
		room()
		check(t, r.sends(alice, "again"))
		v.event(protocol.ChatText)
		r.started().hear(t, "begin")
	})
}

// TestDeleted: what can't be stored any more isn't tried for ever.
func TestDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		p := r.begins("go")
		if err := r.Delete(session, r.id); code(err) != "RUN_IN_PROGRESS" {
			t.Error(err)
		}
		check(t, r.logs.Delete(r.id))
		p.print("text lost")
		<-p.exit
		check(t, r.SessionEnded(session))
	})
}

// TestDiskIsToldOnce: a program that goes on to print while its run is ended for a
// full disk adds nothing to what is told of that.
// It is about weakness 5 in deploy/e2e/README.md.
func TestDiskIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		v, p := r.follows()
		p.deafen()
		full, room := r.disk()
		full()
		p.print("text lost")
		<-p.ends
		p.print("text lost", "text lost")
		room()
		p.print("text late")
		synctest.Wait()
		p.quit(130, "")
		v.fails("can't be stored")
	})
}

// TestDiskOutlastsFollowers: what couldn't be stored isn't forgotten when nobody
// follows for longer than a conversation is kept at hand.
func TestDiskOutlastsFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		p := r.begins("go")
		full, room := r.disk()
		full()
		p.print("text lost")
		<-p.exit
		time.Sleep(3 * linger)
		room()
		time.Sleep(2 * unsaidAgain)
		v := r.view(bob, protocol.ChatParams{After: new(uint64(0))})
		v.event(protocol.ChatText)
		v.fails("can't be stored")
	})
}

// TestDurable: a message, an answer and a complete outlive a crash of the machine
// before anybody sees them; what is said in between doesn't wait for the disk.
func TestDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		syncs := uint64(0)
		seen := func(what string, waits bool) {
			t.Helper()
			was := syncs
			if syncs = r.logs.Counts().Syncs; (syncs > was) != waits {
				t.Errorf("%s: %d syncs, %d before", what, syncs, was)
			}
		}
		p := r.begins("go")
		v.event(protocol.ChatText)
		seen("the message", true)
		p.print("text x")
		v.event(protocol.ChatText)
		seen("a text", false)
		p.print(`ask q1 Bash {}`)
		asked := v.event(protocol.ChatPermissionRequest)
		seen("a question", false)
		r.decides(asked, protocol.Deny, "", approval.Reply{})
		v.decidedBy(protocol.Deny, asked)
		seen("the answer", true)
		p.print("done 0")
		v.completes(0, false)
		seen("complete", true)
		check(t, r.sends(alice, "again"))
		v.event(protocol.ChatText)
		seen("the next message", true)
	})
}
