package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	session      = protocol.SessionID("ses_1")
	conversation = protocol.ConversationID("conversation-1")
	native       = "0a1b2c3d-native"
)

// converses makes a conversation in which something was said, and a coding agent
// that notes how it is started.
func (w *world) converses() {
	w.t.Helper()
	bin := filepath.Join(w.cfg.StateDir, "../bin")
	folder := filepath.Join(w.cfg.StateDir, "chat", string(conversation))
	must(w.t, os.MkdirAll(bin, 0o755))
	must(w.t, os.MkdirAll(folder, 0o700))
	w.cfg.ProgramPath = []string{filepath.Clean(bin)}
	must(w.t, os.WriteFile(filepath.Join(bin, "claude"), []byte("#!/bin/sh\necho \"$*\" >>\"$HOME/args\"\nread -r line\n"), 0o755))
	meta, err := json.Marshal(map[string]any{
		"format": 1, "id": conversation, "session": session, "provider": "claude", "native": native,
		"projectPath": w.cfg.Workspace, "createdAt": 1, "updatedAt": 1,
	})
	must(w.t, err)
	must(w.t, os.WriteFile(filepath.Join(folder, "meta.json"), meta, 0o600))
}

// does carries out an operation as alice asks for it.
func does(a *Agent, kind string, pty protocol.PTYID, body op.Body) (protocol.OpResult, error) {
	text, err := json.Marshal(op.Op{Kind: kind, Body: body})
	if err != nil {
		return protocol.OpResult{}, err
	}
	command := &jws.Command{CommandID: "cmd_1", UserID: "usr_alice", Target: protocol.CommandTarget{SessionID: session, PTYID: pty}, Op: text}
	run, err := a.features.Operations()[kind](command, body)
	if err != nil {
		return protocol.OpResult{}, err
	}
	return run(context.Background())
}

// continues has the conversation go on in a terminal.
func continues(a *Agent) (protocol.PTYID, error) {
	result, err := does(a, op.KindPTYCreate, "", &op.PTYCreate{CreatorID: "usr_alice", Conversation: conversation})
	return result.PTYID, err
}

// TestContinueInTerminal: a conversation goes on in one terminal at a time, and is
// free again when that is closed, when it couldn't be started, and when the agent
// has ended; a session that ends takes both with it.
func TestContinueInTerminal(t *testing.T) {
	w := newWorld(t)
	w.converses()
	a := w.start()
	first, err := continues(a)
	must(t, err)
	if _, err := continues(a); protocol.KindOf(err) != protocol.KindConflict || !strings.HasPrefix(err.Error(), string(protocol.ChatRunInProgress)) {
		t.Errorf("while it is in a terminal: %v", err)
	}
	if all := a.host.List(session); len(all) != 1 || all[0].ID != first || all[0].Command != "claude" || all[0].Conversation != conversation {
		t.Errorf("%+v", all)
	}
	args := filepath.Join(w.cfg.Homes, ".kept", string(session), "home/args")
	waitFor(t, "the coding agent runs", func() bool {
		noted, err := os.ReadFile(args)
		return err == nil && string(noted) == "--resume "+native+"\n"
	})
	_, err = does(a, op.KindPTYClose, first, &op.Plain{})
	must(t, err)
	if _, err := os.Stat(args); err != nil {
		t.Errorf("the home has gone with the terminal: %v", err)
	}

	program := filepath.Join(w.cfg.ProgramPath[0], "claude")
	must(t, os.Rename(program, program+".away"))
	if _, err := continues(a); protocol.KindOf(err) != protocol.KindInvalid || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("without the program: %v", err)
	}
	must(t, os.Rename(program+".away", program))
	_, err = continues(a)
	must(t, err)
	a.close()
	a = w.start()
	_, err = continues(a)
	must(t, err)
	must(t, a.features.SessionEnded(session))
	if all := a.host.List(session); len(all) > 0 {
		t.Errorf("the session is over: %+v", all)
	}
	if _, err := os.Stat(filepath.Dir(args)); !os.IsNotExist(err) {
		t.Errorf("its home is there: %v", err)
	}
	if _, err := continues(a); protocol.KindOf(err) != protocol.KindNotFound {
		t.Errorf("it goes on: %v", err)
	}
	if log := w.log.String(); strings.Contains(log, native) {
		t.Errorf("the log has what the provider calls it:\n%s", log)
	}
}

// TestShellGoesOn: a shell that resumes a conversation of its session goes on in it;
// any other id is an argument of the coding agent, and never shell text.
func TestShellGoesOn(t *testing.T) {
	w := newWorld(t)
	w.converses()
	a := w.start()
	opens := func(s op.Shell) (protocol.PTYInfo, error) {
		result, err := does(a, op.KindPTYCreate, "", &op.PTYCreate{CreatorID: "usr_alice", Shell: &s})
		if err != nil {
			return protocol.PTYInfo{}, err
		}
		term, err := a.host.Get(session, result.PTYID)
		must(t, err)
		return term.Info(), nil
	}
	resumes := op.Shell{Provider: "claude", SessionID: string(conversation), HasSession: true}
	astray := resumes
	astray.ProjectPath = "/etc"
	if _, err := opens(astray); protocol.KindOf(err) != protocol.KindInvalid || err.Error() != op.ShellBadPath {
		t.Errorf("in another folder: %v", err)
	}
	info, err := opens(resumes)
	must(t, err)
	if info.ID != resumes.PTYID(session) || info.Conversation != conversation || info.Command != "claude" {
		t.Errorf("%+v", info)
	}
	args := filepath.Join(w.cfg.Homes, ".kept", string(session), "home/args")
	waitFor(t, "the coding agent resumes", func() bool {
		noted, err := os.ReadFile(args)
		return err == nil && string(noted) == "--resume "+native+"\n"
	})
	if _, err := opens(resumes); protocol.KindOf(err) != protocol.KindConflict || strings.Contains(err.Error(), string(protocol.ChatRunInProgress)) {
		t.Errorf("the same once more: %v", err)
	}
	if _, err := does(a, op.KindPTYCreate, "pty_mine", &op.PTYCreate{Shell: &resumes}); protocol.KindOf(err) != protocol.KindInvalid {
		t.Errorf("under another id: %v", err)
	}
	other := op.Shell{Provider: "claude", SessionID: "of-the-program", HasSession: true}
	info, err = opens(other)
	must(t, err)
	if info.Conversation != "" || info.Command != "claude" {
		t.Errorf("%+v", info)
	}
	waitFor(t, "the coding agent resumes its own session", func() bool {
		noted, err := os.ReadFile(filepath.Join(w.cfg.Homes, string(info.ID), "args"))
		return err == nil && string(noted) == "--resume of-the-program\n"
	})
}

// TestShellAgain: weakness 12. A shell that has ended is in the way of another until
// somebody has seen its end.
func TestShellAgain(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	shell := &op.PTYCreate{Shell: &op.Shell{Provider: op.PlainShell, InitialCommand: "echo last words; exit 3"}}
	result, err := does(a, op.KindPTYCreate, "", shell)
	must(t, err)
	term, err := a.host.Get(session, result.PTYID)
	must(t, err)
	waitFor(t, "it has ended", func() bool { return term.Info().Exited != nil })
	if _, err := does(a, op.KindPTYCreate, "", shell); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("nobody has seen its end: %v", err)
	}
	viewer, _, err := term.Attach(protocol.TerminalParams{SessionID: session, PTYID: result.PTYID})
	must(t, err)
	defer viewer.Close()
	for !term.EndSeen() {
		_, err := viewer.Next(t.Context())
		must(t, err)
	}
	again, err := does(a, op.KindPTYCreate, "", shell)
	must(t, err)
	if now, err := a.host.Get(session, again.PTYID); err != nil || now == term || again.PTYID != result.PTYID {
		t.Errorf("%s: %v", again.PTYID, err)
	}
}
