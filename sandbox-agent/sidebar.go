package agent

import (
	"context"

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
	return sidebar.Watched{Set: w.Browser, Activity: w.activity}.Tools(caller)
}

// Tabs implements [sidebar.Browser].
func (w watchedBrowser) Tabs(ctx context.Context, session protocol.SessionID) []sidebar.BrowserTab {
	var all []sidebar.BrowserTab
	for _, tab := range w.Browser.Tabs(ctx, session) {
		all = append(all, sidebar.BrowserTab{ID: lineup.Tab(tab.ID), URL: tab.URL, Title: tab.Title})
	}
	return all
}
