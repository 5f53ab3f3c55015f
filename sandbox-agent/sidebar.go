package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hooks"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// panelTools returns the tools that side panels' agents use without a question:
// they read files and use the session's browser.
func (w watchedBrowser) panelTools() []string {
	names := []string{"Read", "Glob", "Grep"}
	for _, tool := range w.Tools(toolbox.Caller{}) {
		names = append(names, "mcp__"+hooks.ServerName+"__"+tool.Name)
	}
	return names
}

// panelTalks are the conversations of side panels' tabs.
type panelTalks struct{ *chat.Chats }

// Listen implements [sidebar.Conversations].
func (p panelTalks) Listen(session protocol.SessionID, id protocol.ConversationID, after uint64) (sidebar.Listening, protocol.ChatState, error) {
	l, state, err := p.Chats.Listen(session, id, after)
	if err != nil {
		return nil, state, err
	}
	return l, state, nil
}

// A watchedBrowser is the sessions' browsers, of which side panels show what their
// tools do.
type watchedBrowser struct {
	*browser.Browser
	activity *activity.Log
}

// Tools implements [toolbox.Set].
func (w watchedBrowser) Tools(caller toolbox.Caller) []toolbox.Tool {
	return sidebar.Watched{Set: w.Browser, Places: w.Browser, Activity: w.activity}.Tools(caller)
}

// Tabs implements [sidebar.Browser].
func (w watchedBrowser) Tabs(ctx context.Context, session protocol.SessionID) []sidebar.BrowserTab {
	var all []sidebar.BrowserTab
	for _, tab := range w.Browser.Tabs(ctx, session) {
		all = append(all, sidebar.BrowserTab{ID: lineup.Tab(tab.ID), URL: tab.URL, Title: tab.Title})
	}
	return all
}

// Closed implements [sidebar.Browser].
func (w watchedBrowser) Closed(session protocol.SessionID, tab lineup.Tab) bool {
	return w.TabClosed(session, int(tab))
}

// Active implements [sidebar.Browser].
func (w watchedBrowser) Active(session protocol.SessionID) lineup.Tab {
	return lineup.Tab(w.ActiveTab(session))
}

// Switch implements [sidebar.Browser].
func (w watchedBrowser) Switch(session protocol.SessionID, tab lineup.Tab) {
	_ = w.SwitchTab(session, int(tab)) // a panel shows tabs that aren't open as well
}

// bound starts programs of conversations, those of side panels' tabs bound to theirs.
type bound struct {
	chat.Programs
	panels *sidebar.Sidebars // set before anything starts
}

// Start implements [chat.Programs].
func (b *bound) Start(ctx context.Context, p chat.Program) (chat.Process, error) {
	if tab := b.panels.BoundTab(p.Session, p.Conversation); tab > 0 {
		p.Command.Env = append(slices.Clone(p.Command.Env), fmt.Sprintf("%s=%d", toolbox.TabVariable, tab))
	}
	return b.Programs.Start(ctx, p)
}
