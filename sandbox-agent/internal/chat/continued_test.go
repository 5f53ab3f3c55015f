package chat

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// continues goes on with the rig's conversation in a terminal.
func (r *rig) continues(user protocol.UserID, pty protocol.PTYID) (*Continued, error) {
	return r.Continue(context.Background(), session, r.id, user, pty)
}

// TestContinue: a conversation goes on in one terminal at a time, for who may write.
// Its own process ends before, nothing can be sent meanwhile, everybody sees where
// it is, and afterwards it goes on where it was.
func TestContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		if _, err := r.continues(alice, "pty_1"); protocol.KindOf(err) != protocol.KindConflict {
			t.Errorf("before anything was said: %v", err)
		}
		p := r.begins("hello")
		v.event(protocol.ChatText)
		p.print("native n-1")
		if _, err := r.continues(alice, "pty_1"); code(err) != "RUN_IN_PROGRESS" {
			t.Errorf("during a run: %v", err)
		}
		p.print("done 0")
		v.completes(0, false)
		if _, err := r.continues(bob, "pty_1"); code(err) != "NOT_CONTROLLER" {
			t.Errorf("while alice writes: %v", err)
		}
		if _, err := r.Continue(t.Context(), "ses_2", r.id, alice, "pty_1"); code(err) != "SESSION_NOT_FOUND" {
			t.Errorf("in another session: %v", err)
		}
		r.programs.resumed = "n-1"
		if _, err := r.continues(alice, "pty_1"); code(err) != "RUN_IN_PROGRESS" {
			t.Errorf("while a terminal has it open: %v", err)
		}
		r.programs.resumed = ""
		if v.state.Terminal != "" {
			t.Errorf("it is in %s", v.state.Terminal)
		}
		taken, err := r.continues(alice, "pty_1")
		check(t, err)
		if !slices.Equal(taken.Command.Args, []string{"n-1"}) || taken.Dir != r.o.Workspace {
			t.Errorf("%+v", taken)
		}
		select {
		case <-p.exit:
		default:
			t.Error("its own process runs")
		}
		for user, want := range map[protocol.UserID]string{alice: "RUN_IN_PROGRESS", bob: "NOT_CONTROLLER"} {
			if err := r.sends(user, "meanwhile"); code(err) != want {
				t.Errorf("%s sends: %v", user, err)
			}
			if _, err := r.continues(user, "pty_2"); code(err) != want {
				t.Errorf("%s goes on elsewhere: %v", user, err)
			}
		}
		if err := r.Delete(session, r.id); code(err) != "RUN_IN_PROGRESS" {
			t.Errorf("it was deleted: %v", err)
		}
		if late := r.view(bob, protocol.ChatParams{}); late.state.Terminal != "pty_1" || late.state.Run != protocol.RunIdle {
			t.Errorf("who comes later sees %+v", late.state)
		}
		time.Sleep(2 * linger) // nobody needs its owner
		taken.Back()
		taken.Back()
		check(t, r.sends(alice, "again"))
		if next := r.started(); next.program.Command.Args[0] != "n-1" {
			t.Errorf("%+v", next.program)
		}
		v.event(protocol.ChatText)
		if v.state.Terminal != "" || v.state.Run != protocol.RunRunning {
			t.Errorf("%+v", v.state)
		}
	})
}

// TestContinueGivesUp: where the conversation's own process doesn't end in time, it
// stays where it was.
func TestContinueGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		p := r.begins("hello")
		v.event(protocol.ChatText)
		p.deafen()
		p.print("native n-1", "done 0")
		v.completes(0, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Continue(ctx, session, r.id, alice, "pty_1"); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Errorf("%v", err)
		}
		p.quit(0, "")
		check(t, r.sends(alice, "again"))
		r.started()
		v.event(protocol.ChatText)
		if v.state.Terminal != "" {
			t.Errorf("%+v", v.state)
		}
	})
}

// TestContinueClosed: an agent that ends doesn't wait for a terminal.
func TestContinueClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		p := r.begins("hello")
		p.print("native n-1", "done 0")
		synctest.Wait()
		taken, err := r.continues(alice, "pty_1")
		check(t, err)
		check(t, r.Close())
		taken.Back()
	})
}
