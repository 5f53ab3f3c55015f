package source

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol"
)

// maxToken bounds a token or a link with one, in bytes.
const maxToken = 16 << 10

func declareLogin(c *program.Command) {
	var address, session, token string
	c.Describe(`Says which control plane you use, who you are, and which sandbox's browser is to be
signed in. It asks for your token; the console's link, which has one, will do. The
token is kept in login.json for you alone.

The address is the control plane's own, from whoever runs it. Don't take it from a
relay: one that lies could read your cookies.`)
	c.Arg(&address, "CONTROL-PLANE")
	c.String(&session, "session", "", "`ID` of the session, if you have several")
	c.Secret(&token, "token", "your token; it is asked for otherwise")
	command(c, func(ctx context.Context, r *run) error {
		return r.logIn(ctx, address, protocol.SessionID(session), token)
	})
}

func (r *run) logIn(ctx context.Context, address string, wanted protocol.SessionID, token string) error {
	base, err := origin(address)
	if err != nil {
		return err
	}
	if token == "" {
		if token, err = r.askToken(); err != nil {
			return err
		}
	}
	token = tokenIn(token)
	if token == "" {
		return errors.New("a token is needed: it is after #token= in your console's link")
	}
	about, err := newControlPlane(base, token).me(ctx)
	if err != nil {
		return err
	}
	chosen, err := choose(about.Sessions, wanted)
	if err != nil {
		return err
	}
	if p, err := r.dir.Pairing(); err == nil && (p.Session != chosen.ID || p.ControlPlane != base) {
		return errors.New("this computer is paired with another sandbox: fairlead-source unpair first, or use another --config-dir")
	}
	if err := r.dir.PutLogin(config.Login{ControlPlane: base, Token: token, User: about.User.Name, Session: chosen.ID, Dashboard: chosen.Dashboard}); err != nil {
		return err
	}
	r.say(map[string]any{"user": about.User.Name, "session": chosen.ID, "dashboard": chosen.Dashboard},
		"You are %s, and the browser is that of session %s, dashboard %s.\nNext: fairlead-source pair --site github.com", about.User.Name, chosen.ID, chosen.Dashboard)
	return nil
}

// askToken reads a line, which isn't shown at a terminal.
func (r *run) askToken() (string, error) {
	if f, ok := r.env.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(os.Stderr, "Your token, or the console's link with it (it isn't shown): ")
		line, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(os.Stderr)
		return string(line), err
	}
	line, err := bufio.NewReader(io.LimitReader(r.env.Stdin, maxToken)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

// tokenIn returns the token in what somebody pasted.
func tokenIn(text string) string {
	if _, after, found := strings.Cut(text, "#token="); found {
		text, _, _ = strings.Cut(after, "&")
	}
	return strings.TrimSpace(text)
}

// choose returns the session that is meant: the one that was named, or the only one
// whose browser the person may sign in.
func choose(all []session, wanted protocol.SessionID) (session, error) {
	may := slices.DeleteFunc(slices.Clone(all), func(s session) bool { return !slices.Contains(s.Capabilities, protocol.CapSync) })
	if wanted != "" {
		if i := slices.IndexFunc(all, func(s session) bool { return s.ID == wanted }); i < 0 {
			return session{}, fmt.Errorf("you have no session %s", wanted)
		}
		may = slices.DeleteFunc(may, func(s session) bool { return s.ID != wanted })
	}
	switch len(may) {
	case 0:
		return session{}, errors.New("you may not sign in the browser there: that takes the capability sync, which owners and editors have")
	case 1:
		return may[0], nil
	}
	var names []string
	for _, s := range may {
		names = append(names, fmt.Sprintf("%s (%s)", s.ID, s.Dashboard))
	}
	return session{}, fmt.Errorf("you have several sessions: say which with --session: %s", strings.Join(names, ", "))
}
