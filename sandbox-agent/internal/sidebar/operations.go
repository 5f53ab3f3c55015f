package sidebar

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// Operations implements [feature.Operator].
func (s *Sidebars) Operations() feature.Operations {
	return feature.Operations{
		op.KindSidebarSend:    do(s, s.send),
		op.KindSidebarStop:    do(s, stop),
		op.KindSidebarClear:   do(s, clearChat),
		op.KindSidebarDismiss: do(s, dismiss),
		op.KindSidebarSwitch:  do(s, s.show),
		op.KindSidebarNew:     do(s, renew),
	}
}

// do makes a handler of what is done in the panel of the command's session.
func do[B op.Body](s *Sidebars, carryOut func(context.Context, *Panel, *jws.Command, B) (op.SidebarResult, error)) feature.Handler {
	return feature.Do(func(ctx context.Context, command *jws.Command, body B) (protocol.OpResult, error) {
		p, err := s.panel(command.Target.SessionID)
		if err != nil {
			return protocol.OpResult{}, err
		}
		answer, err := carryOut(ctx, p, command, body)
		if err != nil {
			return protocol.OpResult{}, err
		}
		result := feature.Done(command)
		result.Sidebar, err = json.Marshal(answer)
		return result, err
	})
}

func (s *Sidebars) send(ctx context.Context, p *Panel, command *jws.Command, body *op.SidebarSend) (op.SidebarResult, error) {
	position, err := p.send(message{command, body}, s.o.Browser.Tabs(ctx, p.session))
	return op.SidebarResult{Position: position}, err
}

func stop(_ context.Context, p *Panel, command *jws.Command, body *op.SidebarStop) (op.SidebarResult, error) {
	why := textStopped
	if body.Kill {
		why = textKilled
	}
	dropped, err := p.stop(command.UserID, lineup.Tab(body.TabID), why)
	return op.SidebarResult{QueuedMessages: dropped}, err
}

func clearChat(_ context.Context, p *Panel, _ *jws.Command, body *op.SidebarClear) (op.SidebarResult, error) {
	p.clear(lineup.Tab(body.TabID))
	return op.SidebarResult{}, nil
}

func dismiss(_ context.Context, p *Panel, _ *jws.Command, body *op.SidebarDismiss) (op.SidebarResult, error) {
	return op.SidebarResult{}, p.dismiss(lineup.Tab(body.TabID), body.Index)
}

func (s *Sidebars) show(ctx context.Context, p *Panel, _ *jws.Command, body *op.SidebarSwitch) (op.SidebarResult, error) {
	t, err := p.show(lineup.Tab(body.TabID), s.o.Browser.Tabs(ctx, p.session))
	if err != nil {
		return op.SidebarResult{}, err
	}
	s.o.Browser.Switch(p.session, t.ID)
	text, err := json.Marshal(t)
	return op.SidebarResult{ActiveTab: s.o.Secrets.Mask(text)}, err
}

func renew(_ context.Context, p *Panel, command *jws.Command, _ *op.Plain) (op.SidebarResult, error) {
	c, err := p.renew(command.UserID)
	if err != nil {
		return op.SidebarResult{}, err
	}
	text, err := json.Marshal(c)
	return op.SidebarResult{Session: text}, err
}
