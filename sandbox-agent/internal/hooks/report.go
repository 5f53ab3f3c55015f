package hooks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// reportTimeout bounds a report, because a coding agent waits for its hooks.
	reportTimeout = 5 * time.Second
	// maxInput bounds the input of a hook.
	maxInput = 4 << 20
	// inputVariable holds the input where standard input doesn't.
	inputVariable = "FAIRLEAD_HOOK_INPUT"
)

// credentialsFile holds a terminal's credentials, relative to its home.
const credentialsFile = ".fairlead/mcp.json"

// ReportOptions say what a hook reports.
type ReportOptions struct {
	Agent  string // as in Options
	Event  string // start, stop, ask, fail, interrupt or ready
	Args   []string
	Stdin  io.Reader // nil: nothing
	Getenv func(string) string
	// Client sends it; nil: one that uses no proxy and follows no redirect.
	Client *http.Client
}

// Report tells the agent about a coding agent's hook event. The hook's program
// should neither print the error nor fail with it, because the coding agent
// would take it for its own. The secret goes to a loopback address only and is
// in no error. Report takes 5 s at most.
func Report(ctx context.Context, o ReportOptions) error {
	a, ok := agentCalled(o.Agent)
	if !ok {
		return ErrUnknownAgent
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	m, err := o.message(ctx, a)
	if err != nil {
		return err
	}
	if o.Client == nil {
		o.Client = &http.Client{
			Transport:     &http.Transport{Proxy: nil},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		defer o.Client.CloseIdleConnections()
	}
	err = errors.New("no credentials")
	for _, c := range o.credentials() {
		if err = c.post(ctx, o.Client, m); err == nil {
			return nil
		}
	}
	return err
}

// A message is one request of a report.
type message struct {
	path string
	body any
}

// message returns the request that reports the event.
func (o ReportOptions) message(ctx context.Context, a agent) (message, error) {
	var reason protocol.StopReason
	switch o.Event {
	case eventStart:
		return message{"agent-started", protocol.AgentReported{Agent: a.reported, Session: o.input(ctx).session()}}, nil
	case eventReady:
		return message{"agent-ready", protocol.AgentReported{Agent: a.reported, Session: o.input(ctx).session()}}, nil
	case eventStop, eventAsk:
		reason = protocol.StopComplete
	case eventFail:
		reason = protocol.StopError
	case eventInterrupt:
		reason = protocol.StopInterrupted
	default:
		return message{}, fmt.Errorf("no such event: %q", o.Event)
	}
	in := o.input(ctx)
	if a.name == "codex" && in.Type != "agent-turn-complete" {
		return message{}, fmt.Errorf("codex notifies of something else: %q", in.Type)
	}
	return message{"agent-stopped", protocol.AgentStoppedReport{
		AgentReported: protocol.AgentReported{Agent: a.reported, Session: in.session()}, LastMessage: clip(in.last(o.Event)), Reason: reason,
	}}, nil
}

// hookInput is the input of hooks. Each coding agent sets some of its fields.
type hookInput struct {
	Type         string `json:"type"`                   // codex
	LastMessage  string `json:"last_assistant_message"` // claude, ours
	LastDashed   string `json:"last-assistant-message"` // codex
	Response     string `json:"prompt_response"`        // gemini
	Notification string `json:"message"`                // of a notification: claude, gemini, droid
	Transcript   string `json:"transcript_path"`        // claude, gemini, droid
	Session      string `json:"session_id"`             // claude, gemini, droid, ours
	Thread       string `json:"thread-id"`              // codex
}

// session returns the coding agent's own id of its session, "" for none that could
// be reported.
func (in hookInput) session() string {
	id := cmp.Or(in.Session, in.Thread)
	if !protocol.ValidConversation(protocol.ConversationID(id)) {
		return ""
	}
	return id
}

// last returns what the agent said last, or asks.
func (in hookInput) last(event string) string {
	if event == eventAsk && in.Notification != "" {
		return in.Notification
	}
	for _, said := range []string{in.LastMessage, in.LastDashed, in.Response} {
		if said != "" {
			return said
		}
	}
	if in.Transcript != "" && event != eventAsk {
		return lastInTranscript(in.Transcript)
	}
	return ""
}

// input reads the hook's input from the environment, the last argument or
// standard input. Unreadable input counts as empty.
func (o ReportOptions) input(ctx context.Context) (in hookInput) {
	text := []byte(o.Getenv(inputVariable))
	if len(text) == 0 && len(o.Args) > 0 {
		text = []byte(o.Args[len(o.Args)-1])
	}
	if len(text) == 0 && o.Stdin != nil {
		text = readAll(ctx, o.Stdin)
	}
	if json.Unmarshal(text, &in) != nil {
		return hookInput{}
	}
	return in
}

// readAll reads r until it ends or ctx does. In the second case its goroutine
// ends with r.
func readAll(ctx context.Context, r io.Reader) []byte {
	done := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, maxInput)) // a partial text is not JSON
		done <- text
	}()
	select {
	case text := <-done:
		return text
	case <-ctx.Done():
		return nil
	}
}

// clip returns the end of s, at most as long as a report allows.
func clip(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= protocol.MaxLastMessage {
		return s
	}
	s = s[len(s)-protocol.MaxLastMessage:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// credentials are a terminal's. They are tried in order, because those in the
// environment may be an ended agent's, and some coding agents remove the secret
// from it.
type credentials protocol.MCPCredentials

func (o ReportOptions) credentials() (all []credentials) {
	env := func(name string) string {
		if v := o.Getenv("FAIRLEAD_" + name); v != "" {
			return v
		}
		return o.Getenv("ORCABOT_" + name)
	}
	c := credentials{
		URL: env("MCP_URL"), Secret: env("MCP_SECRET"),
		SessionID: protocol.SessionID(env("SESSION_ID")), PTYID: protocol.PTYID(env("PTY_ID")),
	}
	if c.complete() {
		all = append(all, c)
	}
	var kept credentials
	if home := o.Getenv("HOME"); home != "" {
		text, err := os.ReadFile(filepath.Join(home, credentialsFile))
		if err == nil && json.Unmarshal(text, &kept) == nil && kept.complete() && kept != c {
			all = append(all, kept)
		}
	}
	return all
}

func (c credentials) complete() bool {
	return c.URL != "" && c.Secret != "" && c.SessionID != "" && c.PTYID != ""
}

// target returns the URL of a request.
func (c credentials) target(name string) (string, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "", errors.New("the address of the agent is malformed")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "http" || u.User != nil || !(u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
		return "", errors.New("the address of the agent is not on this machine")
	}
	at := url.URL{Scheme: "http", Host: u.Host}
	return at.JoinPath("sessions", string(c.SessionID), "ptys", string(c.PTYID), name).String(), nil
}

// post sends m.
func (c credentials) post(ctx context.Context, client *http.Client, m message) error {
	target, err := c.target(m.path)
	if err != nil {
		return err
	}
	body, err := json.Marshal(m.body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(protocol.MCPSecretHeader, c.Secret)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the agent answered %d", resp.StatusCode)
	}
	return nil
}
