package stage

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/agents"
	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
)

// simulateWait bounds the registration of a simulated sandbox.
const simulateWait = 30 * time.Second

// Simulate has a simulated sandbox join the local stack, and makes a session in
// it the one that is loaded. bin is the directory with the programs.
func (e *Env) Simulate(ctx context.Context, bin string) error {
	e.Progress("simulated sandbox", 0, 1)
	ctx, cancel := context.WithTimeout(ctx, simulateWait)
	defer cancel()
	dir := e.Local.Target().Dir
	state := filepath.Join(dir, "controlplane")
	owner := e.Target.Owner()
	invitations, err := enrol.Invite{
		Program: filepath.Join(bin, "controlplane"), StateDir: state, Count: 1, Owner: owner.ID,
	}.Run(ctx)
	if err != nil {
		return err
	}
	direct, err := enrol.DirectAddress(state)
	if err != nil {
		return err
	}
	identities, err := enrol.Many(ctx, invitations, enrol.Options{ControlPlane: direct})
	if err != nil {
		return fmt.Errorf("simulated sandbox: %w", err)
	}
	kept := filepath.Join(dir, "simulated")
	if err := enrol.Save(kept, identities); err != nil {
		return err
	}
	spec := agents.Spec{Identities: kept, Last: 1}
	if s := e.Local.Shaper(); s != nil {
		spec.Relays = []string{s.Addr()}
	}
	fleet, err := e.Generators.Start(ctx, agents.Kind, []any{spec}) // ends with the pool
	if err != nil {
		return err
	}
	answers, err := generator.Ask[agents.Back](ctx, fleet, agents.OrderConnect, agents.Wait{At: time.Now(), Within: simulateWait})
	if err != nil {
		return err
	}
	if len(answers[0].After) == 0 {
		return fmt.Errorf("the simulated sandbox didn't register: %s", answers[0].Why)
	}
	session, err := enrol.Account{URL: e.Target.Relays[0].URL, Token: owner.Token}.Session(ctx, identities[0].Enrolment.SandboxID)
	if err != nil {
		return err
	}
	if err := e.admit(ctx, session, e.Options.People()); err != nil {
		return err
	}
	target := *e.Target
	target.Session, target.PTY, target.Sandboxes = session, "", nil
	e.Target = &target
	e.Progress("simulated sandbox", 1, 1)
	return nil
}
