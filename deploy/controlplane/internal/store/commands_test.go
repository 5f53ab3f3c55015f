package store

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func command(key, hash string) Command {
	return Command{
		User: "usr_alice", Key: key, RequestHash: []byte(hash), Kind: op.KindPTYCreate,
		CallbackToken: "ct_callback-token",
		Envelope: protocol.CommandEnvelope{
			CommandID: protocol.NewCommandID(), IssuedAt: epoch.UnixMilli(), TTLMs: 30_000,
			Target: protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1"},
		},
	}
}

func TestOneCommandPerKey(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		ids := make([]protocol.CommandID, 50)
		for _, err := range parallel(len(ids), func(i int) error {
			cmd, err := s.Commands.AddCommand(t.Context(), command("k", "a"))
			ids[i] = cmd.Envelope.CommandID
			return err
		}) {
			must(t, err)
		}
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("two commands: %s and %s", ids[0], id)
			}
		}
		_, err := s.Commands.AddCommand(t.Context(), command("k", "b"))
		wantKind(t, err, protocol.KindConflict)
		twice := command("", "a")
		twice.Envelope.CommandID = ids[0]
		_, err = s.Commands.AddCommand(t.Context(), twice)
		wantKind(t, err, protocol.KindConflict)
		nobody := command("k", "a")
		nobody.User = ""
		_, err = s.Commands.AddCommand(t.Context(), nobody)
		wantKind(t, err, protocol.KindInvalid)
		for range 2 { // no key, no memory
			if cmd, err := s.Commands.AddCommand(t.Context(), command("", "a")); err != nil || cmd.Envelope.CommandID == ids[0] {
				t.Errorf("%v, %v", cmd, err)
			}
		}
	})
}

// TestOneSessionPerKey: of the sessions of commands with one key, one is made.
func TestOneSessionPerKey(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		for _, err := range parallel(20, func(int) error {
			cmd := command("k", "a")
			cmd.NewSession, cmd.Envelope.Target.SessionID = "dash_1", protocol.NewSessionID()
			_, err := s.Commands.AddCommand(t.Context(), cmd)
			return err
		}) {
			must(t, err)
		}
		sessions, err := s.Sessions.SessionsOf(t.Context(), "dash_1")
		if err != nil || len(sessions) != 2 {
			t.Fatalf("%+v, %v; want the seed's and one more", sessions, err)
		}
		made := sessions[slices.IndexFunc(sessions, func(s Session) bool { return s.ID != "ses_1" })]
		if made.State != StatePending {
			t.Errorf("state %s", made.State)
		}
		_, err = s.Sessions.Session(t.Context(), "usr_alice", made.ID)
		wantKind(t, err, protocol.KindNotFound)
		must(t, s.Sessions.ActivateSession(t.Context(), made.ID))
		if _, err := s.Sessions.Session(t.Context(), "usr_alice", made.ID); err != nil {
			t.Error(err)
		}
		must(t, s.Sessions.EndSession(t.Context(), made.ID))
		must(t, s.Sessions.ActivateSession(t.Context(), made.ID)) // too late
		_, err = s.Sessions.Session(t.Context(), "usr_alice", made.ID)
		wantKind(t, err, protocol.KindEnded)
	})
}

// TestFindSession: a session is found whatever its state, in the sandbox that
// its dashboard has now.
func TestFindSession(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		find := func(state string, sandbox protocol.SandboxID) {
			t.Helper()
			got, err := s.Sessions.FindSession(t.Context(), "ses_1")
			if err != nil || got.ID != "ses_1" || got.Dashboard != "dash_1" || got.State != state || got.Sandbox != sandbox || got.Role != "" {
				t.Errorf("%+v, %v; want it %s in %q", got, err, state, sandbox)
			}
		}
		find(StateActive, "sb_1")
		must(t, s.Sessions.EndSession(t.Context(), "ses_1"))
		find(StateEnded, "sb_1")
		must(t, s.Boards.RemoveDashboard(t.Context(), "dash_1"))
		find(StateEnded, "")
		_, err := s.Sessions.FindSession(t.Context(), "ses_none")
		wantKind(t, err, protocol.KindNotFound)
	})
}

// TestKeyModel adds commands at random and compares with a map.
func TestKeyModel(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			type key struct {
				user protocol.UserID
				key  string
			}
			model := make(map[key]Command)
			for range rapid.IntRange(1, 12).Draw(rt, "commands") {
				cmd := command(fmt.Sprint(round, rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "key")),
					rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "hash"))
				cmd.User = rapid.SampledFrom([]protocol.UserID{"usr_alice", "usr_bob"}).Draw(rt, "user")
				got, err := s.Commands.AddCommand(t.Context(), cmd)
				old, used := model[key{cmd.User, cmd.Key}]
				switch {
				case !used && err == nil && got.Envelope.CommandID == cmd.Envelope.CommandID:
					model[key{cmd.User, cmd.Key}] = cmd
				case used && string(old.RequestHash) != string(cmd.RequestHash) && protocol.KindOf(err) == protocol.KindConflict:
				case used && err == nil && got.Envelope == old.Envelope && got.Outcome.Status == StatusSigned:
				default:
					rt.Fatalf("%+v, %v; the key stood for %+v (%v)", got, err, old, used)
				}
			}
		})
	})
}

// TestOutcome: what an executor said once stays; a guess doesn't.
func TestOutcome(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		first, err := s.Commands.AddCommand(t.Context(), command("k", "a"))
		must(t, err)
		for _, tt := range []struct {
			set, want Outcome
			news      News
		}{
			{Outcome{Status: StatusUndelivered, Error: &protocol.ErrorBody{Message: "m", Name: "n"}}, Outcome{Status: StatusUndelivered}, FirstOutcome},
			{Outcome{Status: protocol.StatusUnknown}, Outcome{Status: protocol.StatusUnknown}, NextOutcome},
			{Outcome{Status: protocol.StatusOK, Result: []byte(`{"a":1}`), Callback: []byte("cb"), Signature: []byte("sig")}, Outcome{Status: protocol.StatusOK}, NextOutcome},
			{Outcome{Status: protocol.StatusError, Callback: []byte("other")}, Outcome{Status: protocol.StatusOK}, NothingNew},
			{Outcome{Status: protocol.StatusUnknown}, Outcome{Status: protocol.StatusOK}, NothingNew},
		} {
			if news, err := s.Commands.FinishCommand(t.Context(), first.Envelope.CommandID, tt.set, epoch); err != nil || news != tt.news {
				t.Errorf("%+v is news %d, %v", tt.set, news, err)
			}
			cmd, err := s.Commands.AddCommand(t.Context(), command("k", "a"))
			if err != nil || cmd.Outcome.Status != tt.want.Status {
				t.Errorf("after %+v: %+v, %v", tt.set, cmd.Outcome, err)
			}
			if o := cmd.Outcome; o.Final() && (string(o.Result) != `{"a":1}` || string(o.Callback) != "cb" || string(o.Signature) != "sig") {
				t.Errorf("outcome %+v", o)
			}
		}
	})
}

// TestOneOutcome: of final outcomes that come together, one stays.
func TestOneOutcome(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		cmd, err := s.Commands.AddCommand(t.Context(), command("", "a"))
		must(t, err)
		id := cmd.Envelope.CommandID
		var first atomic.Int64
		for _, err := range parallel(20, func(i int) error {
			word := []byte(fmt.Sprint(i))
			news, err := s.Commands.FinishCommand(t.Context(), id, Outcome{
				Status: protocol.StatusOK, Result: word, Callback: word, Signature: word,
			}, epoch)
			if news != NothingNew {
				first.Add(1)
			}
			return err
		}) {
			must(t, err)
		}
		if n := first.Load(); n != 1 {
			t.Errorf("news to %d of them", n)
		}
		cmd, err = s.Commands.Command(t.Context(), id)
		if o := cmd.Outcome; err != nil || len(o.Result) == 0 || string(o.Result) != string(o.Callback) || string(o.Callback) != string(o.Signature) {
			t.Errorf("a mixture: %+v, %v", o, err)
		}
	})
}

func TestCallback(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "thumb", []byte(`{"kty":"EC"}`), false, epoch))
		cmd, err := s.Commands.AddCommand(t.Context(), command("", "a"))
		must(t, err)
		id := cmd.Envelope.CommandID
		cb, err := s.Commands.CallbackFor(t.Context(), id)
		if err != nil || cb.Sandbox != "sb_1" || cb.DeviceKey != "thumb" || string(cb.DeviceJWK) != `{"kty":"EC"}` ||
			!cb.ExpiresAt.Equal(epoch.Add(30*time.Second)) || cb.Final {
			t.Errorf("%+v, %v", cb, err)
		}
		if !cb.Answers("ct_callback-token") || cb.Answers("") || cb.Answers("ct_callback-tokem") || (Callback{}).Answers("") {
			t.Error("the token isn't checked")
		}
		// Late ones are kept, and change nothing.
		must(t, s.Commands.RecordCallback(t.Context(), id, []byte("late"), []byte("s1"), true))
		must(t, s.Commands.RecordCallback(t.Context(), id, []byte("again"), []byte("s2"), false))
		cmd, err = s.Commands.Command(t.Context(), id)
		if err != nil || cmd.Outcome.Status != StatusSigned || string(cmd.Outcome.Callback) != "late" ||
			string(cmd.Outcome.Signature) != "s1" || cmd.Callbacks != 2 || cmd.Late != 1 || !cmd.FinishedAt.IsZero() {
			t.Errorf("%+v, %v", cmd, err)
		}
		_, err = s.Commands.FinishCommand(t.Context(), id, Outcome{Status: protocol.StatusOK, Callback: []byte("cb")}, epoch)
		must(t, err)
		must(t, s.Commands.RecordCallback(t.Context(), id, []byte("again"), nil, false))
		cmd, err = s.Commands.Command(t.Context(), id)
		if err != nil || string(cmd.Outcome.Callback) != "cb" || cmd.Outcome.Signature != nil || cmd.Callbacks != 3 ||
			!cmd.FinishedAt.Equal(epoch) || cmd.Dashboard != "dash_1" {
			t.Errorf("%+v, %v", cmd, err)
		}
		if cb, err := s.Commands.CallbackFor(t.Context(), id); err != nil || !cb.Final {
			t.Errorf("%+v, %v", cb, err)
		}
		_, err = s.Commands.CallbackFor(t.Context(), "cmd_none")
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, s.Commands.RecordCallback(t.Context(), "cmd_none", nil, nil, false), protocol.KindNotFound)
	})
}

func TestCommandsOf(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		var ids []protocol.CommandID // the newest first
		for i := range 7 {
			cmd := command("", "a")
			cmd.Envelope.CommandID = protocol.CommandID(fmt.Sprintf("cmd_%d", i))
			cmd.Envelope.IssuedAt += int64(i / 2) // several in one millisecond
			_, err := s.Commands.AddCommand(t.Context(), cmd)
			must(t, err)
			ids = slices.Insert(ids, 0, cmd.Envelope.CommandID)
		}
		other := command("", "a")
		other.User, other.Envelope.Target = "usr_bob", protocol.CommandTarget{SandboxID: "sb_2", SessionID: "ses_2"}
		_, err := s.Commands.AddCommand(t.Context(), other)
		must(t, err)
		own := command("", "a") // the control plane's own, for a sandbox alone
		own.User, own.Envelope.Target.SessionID = "", ""
		_, err = s.Commands.AddCommand(t.Context(), own)
		must(t, err)

		for _, f := range []CommandFilter{{Session: "ses_1"}, {User: "usr_alice"}, {Session: "ses_1", User: "usr_alice"}} {
			var got []protocol.CommandID
			for f.Limit = 3; ; {
				page, err := s.Commands.CommandsOf(t.Context(), f)
				must(t, err)
				if len(page) == 0 {
					break
				}
				for _, cmd := range page {
					got = append(got, cmd.Envelope.CommandID)
				}
				f.Before = got[len(got)-1]
			}
			if !slices.Equal(got, ids) {
				t.Errorf("%+v: %v, want %v", f, got, ids)
			}
		}
		if all, err := s.Commands.CommandsOf(t.Context(), CommandFilter{}); err != nil || len(all) != 9 {
			t.Errorf("%d commands, %v", len(all), err)
		}
		if none, err := s.Commands.CommandsOf(t.Context(), CommandFilter{Session: "ses_1", User: "usr_bob"}); err != nil || len(none) != 0 {
			t.Errorf("%v, %v", none, err)
		}
		if cmd, err := s.Commands.Command(t.Context(), own.Envelope.CommandID); err != nil || cmd.User != "" || cmd.Dashboard != "" {
			t.Errorf("%+v, %v", cmd, err)
		}
		_, err = s.Commands.Command(t.Context(), "cmd_none")
		wantKind(t, err, protocol.KindNotFound)
	})
}
