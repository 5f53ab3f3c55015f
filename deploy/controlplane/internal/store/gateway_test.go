package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

func TestGatewayRecords(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		record := func(i int, dashboard string, session protocol.SessionID) GatewayRecord {
			return GatewayRecord{
				At: epoch.Add(time.Duration(i) * time.Minute), Dashboard: dashboard, Session: session, PTY: "pty_1", User: "usr_bob",
				Account: "acc_1", Provider: "github", Action: fmt.Sprint("a", i), Decision: protocol.GatewayDenied,
				Reason: "why\x00", Outcome: "API_ERROR", PolicyID: "pol_1", PolicyVersion: 3,
			}
		}
		for i := range 5 {
			must(t, s.Integrations.AddGatewayRecord(t.Context(), record(i, "dash_1", "ses_1")))
		}
		bare := GatewayRecord{At: epoch, Dashboard: "dash_2", Session: "ses_2", Provider: "tasks", Action: "tasks.list", Decision: protocol.GatewayAllowed}
		must(t, s.Integrations.AddGatewayRecord(t.Context(), bare))
		page, err := s.Integrations.GatewayRecords(t.Context(), "dash_1", "", 2)
		must(t, err)
		if len(page) != 2 || page[0].Action != "a4" || page[1].Action != "a3" {
			t.Fatalf("%+v", page)
		}
		want := record(4, "dash_1", "ses_1")
		want.ID, want.Reason = page[0].ID, "why\uFFFD"
		if page[0] != want {
			t.Errorf("%+v, want %+v", page[0], want)
		}
		rest, err := s.Integrations.GatewayRecords(t.Context(), "dash_1", page[1].ID, 10)
		if err != nil || len(rest) != 3 || rest[0].Action != "a2" {
			t.Errorf("%+v, %v", rest, err)
		}
		other, err := s.Integrations.GatewayRecords(t.Context(), "dash_2", "", 0)
		if err != nil || len(other) != 1 {
			t.Fatalf("%+v, %v", other, err)
		}
		bare.ID = other[0].ID
		if other[0] != bare {
			t.Errorf("%+v", other[0])
		}
		// A record of much later leaves those that are too old behind.
		late := record(9, "dash_1", "ses_1")
		late.At = epoch.Add(GatewayRecordLife + 2*time.Minute + time.Second)
		must(t, s.Integrations.AddGatewayRecord(t.Context(), late))
		all, err := s.Integrations.GatewayRecords(t.Context(), "dash_1", "", 0)
		if err != nil || len(all) != 3 || all[2].Action != "a3" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestTurns(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		turn := func(pty protocol.PTYID, i int) Turn {
			return Turn{
				Session: "ses_1", PTY: pty, Agent: "codex", At: epoch.Add(time.Duration(i) * time.Second),
				Reason: protocol.StopComplete, LastMessage: "done",
			}
		}
		for i := range 5 {
			news, err := s.Sessions.AddTurn(t.Context(), turn("pty_1", i))
			if err != nil || !news {
				t.Fatalf("%v, %v", news, err)
			}
		}
		if news, err := s.Sessions.AddTurn(t.Context(), turn("pty_1", 3)); err != nil || news {
			t.Errorf("told again: %v, %v", news, err)
		}
		if news, err := s.Sessions.AddTurn(t.Context(), turn("pty_2", 3)); err != nil || !news {
			t.Errorf("another terminal: %v, %v", news, err)
		}
		got, err := s.Sessions.Turns(t.Context(), "ses_1", "pty_1", 2)
		if err != nil || !slices.Equal(got, []Turn{turn("pty_1", 4), turn("pty_1", 3)}) {
			t.Errorf("%+v, %v", got, err)
		}
		if all, err := s.Sessions.Turns(t.Context(), "ses_1", "", 0); err != nil || len(all) != 6 {
			t.Errorf("%d, %v", len(all), err)
		}
		must(t, s.db.Concurrently(t.Context(), func(tx db.Runner) error {
			for i := range MaxTurns - 1 {
				if _, err := tx.Exec(t.Context(), `
					INSERT INTO turns (session_id, pty_id, agent, at, reason, last_message) VALUES ('ses_1', 'pty_1', 'codex', ?, 'complete', 'done')`,
					epoch.Add(time.Duration(10+i)*time.Second).UnixMilli()); err != nil {
					return err
				}
			}
			return nil
		}))
		must1(t)(s.Sessions.AddTurn(t.Context(), turn("pty_1", 10+MaxTurns-1)))
		if all, err := s.Sessions.Turns(t.Context(), "ses_1", "pty_1", MaxLimit); err != nil || len(all) != MaxTurns || !all[MaxTurns-1].At.Equal(epoch.Add(10*time.Second)) {
			t.Errorf("%d, %v", len(all), err)
		}
	})
}

func TestTasks(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		one, err := s.Contents.AddTask(t.Context(), Task{Dashboard: "dash_1", Title: "one"})
		must(t, err)
		if one.Status != TaskPending || one.ID == "" || !one.CreatedAt.Equal(epoch) {
			t.Errorf("%+v", one)
		}
		two, err := s.Contents.AddTask(t.Context(), Task{Dashboard: "dash_1", Title: "two", Status: TaskInProgress, Notes: "a\nb"})
		must(t, err)
		for _, bad := range []Task{
			{Dashboard: "dash_1"}, {Dashboard: "dash_1", Title: "a\nb"}, {Dashboard: "dash_1", Title: "x", Status: "lazy"},
			{Dashboard: "dash_1", Title: "x", Notes: "\x00"}, {Dashboard: "dash_1", Title: "\xff"},
		} {
			_, err := s.Contents.AddTask(t.Context(), bad)
			wantKind(t, err, protocol.KindInvalid)
		}
		_, err = s.Contents.AddTask(t.Context(), Task{Dashboard: "dash_1", Title: "x", Notes: strings.Repeat("a", MaxNotesBytes+1)})
		wantKind(t, err, protocol.KindTooLarge)
		_, err = s.Contents.AddTask(t.Context(), Task{Dashboard: "dash_9", Title: "x"})
		wantKind(t, err, protocol.KindNotFound)

		c.Advance(time.Second)
		changed, err := s.Contents.UpdateTask(t.Context(), "dash_1", one.ID, func(t *Task) { t.Status, t.ID, t.Dashboard = TaskCompleted, "x", "dash_2" })
		must(t, err)
		want := one
		want.Status, want.UpdatedAt = TaskCompleted, epoch.Add(time.Second)
		if changed != want {
			t.Errorf("%+v, want %+v", changed, want)
		}
		_, err = s.Contents.UpdateTask(t.Context(), "dash_1", one.ID, func(t *Task) { t.Title = "" })
		wantKind(t, err, protocol.KindInvalid)
		_, err = s.Contents.UpdateTask(t.Context(), "dash_2", one.ID, func(*Task) {})
		wantKind(t, err, protocol.KindNotFound)
		if got, err := s.Contents.Task(t.Context(), "dash_1", one.ID); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		if all, err := s.Contents.Tasks(t.Context(), "dash_1", ""); err != nil || !slices.Equal(all, []Task{want, two}) {
			t.Errorf("%+v, %v", all, err)
		}
		if some, err := s.Contents.Tasks(t.Context(), "dash_1", TaskInProgress); err != nil || !slices.Equal(some, []Task{two}) {
			t.Errorf("%+v, %v", some, err)
		}
		wantKind(t, s.Contents.RemoveTask(t.Context(), "dash_2", one.ID), protocol.KindNotFound)
		must(t, s.Contents.RemoveTask(t.Context(), "dash_1", one.ID))
		_, err = s.Contents.Task(t.Context(), "dash_1", one.ID)
		wantKind(t, err, protocol.KindNotFound)
		must(t, s.Boards.RemoveDashboard(t.Context(), "dash_1"))
		if all, err := s.Contents.Tasks(t.Context(), "dash_1", ""); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestMemory(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		must(t, s.Contents.SetMemo(t.Context(), "dash_1", "b", "two"))
		must(t, s.Contents.SetMemo(t.Context(), "dash_1", "a", ""))
		c.Advance(time.Second)
		must(t, s.Contents.SetMemo(t.Context(), "dash_1", "b", "2\nzwei"))
		want := []Memo{{"a", "", epoch}, {"b", "2\nzwei", epoch.Add(time.Second)}}
		if all, err := s.Contents.Memos(t.Context(), "dash_1"); err != nil || !slices.Equal(all, want) {
			t.Errorf("%+v, %v", all, err)
		}
		if m, err := s.Contents.Memo(t.Context(), "dash_1", "b"); err != nil || m != want[1] {
			t.Errorf("%+v, %v", m, err)
		}
		_, err := s.Contents.Memo(t.Context(), "dash_2", "b")
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, s.Contents.SetMemo(t.Context(), "dash_1", "", "x"), protocol.KindInvalid)
		wantKind(t, s.Contents.SetMemo(t.Context(), "dash_1", "c", "\xff"), protocol.KindInvalid)
		wantKind(t, s.Contents.SetMemo(t.Context(), "dash_1", "c", strings.Repeat("a", MaxMemoBytes+1)), protocol.KindTooLarge)
		wantKind(t, s.Contents.SetMemo(t.Context(), "dash_9", "c", "x"), protocol.KindNotFound)
		must(t, s.Contents.RemoveMemo(t.Context(), "dash_1", "a"))
		wantKind(t, s.Contents.RemoveMemo(t.Context(), "dash_1", "a"), protocol.KindNotFound)
	})
}
