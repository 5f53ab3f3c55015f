// Package provider speaks the REST interfaces of the services whose accounts
// people attach to terminals: Gmail, GitHub, Google Drive and Google Calendar.
//
// It knows what an action touches ([Resources], [Lookup]) and what an answer
// tells of it ([Filter]); whether that is allowed is its caller's business, and
// so are tokens.
package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// The providers.
const (
	Gmail          = "gmail"
	GitHub         = "github"
	GoogleDrive    = "google_drive"
	GoogleCalendar = "google_calendar"
)

const (
	// Timeout bounds an action with all the requests that it takes.
	Timeout = 20 * time.Second
	// MaxAnswer bounds each answer of a provider, and what [Execute] returns.
	MaxAnswer = 4 << 20
	// maxContent bounds the content of a file or message that goes either way:
	// as JSON it must still fit.
	maxContent = 2 << 20
)

// A Call is one action on behalf of one account.
type Call struct {
	Provider string
	Action   string          // "gmail.search", …
	Args     json.RawMessage // an object; empty stands for {}
	Client   *http.Client    // adds the account's token; its redirects are not followed
	NameRoot bool            // of files in Drive's top folder it is called "root", as in a [Resource]; its id otherwise
	BaseURL  string          // empty: the provider's own, see [DefaultBaseURL]
}

// An Action is what can be asked of a provider.
type Action struct {
	Name     string // with the provider before it
	ReadOnly bool   // it changes nothing there
}

// The kinds of a [Resource].
const (
	KindSender    = "sender"    // address of who sent a message, lower-case
	KindRecipient = "recipient" // address of who gets one, lower-case
	KindRepo      = "repo"      // owner/name, lower-case
	KindFolder    = "folder"    // id of the folder in which a file is, "" for none that can be seen, "root" for the top one, see [Call]
	KindCalendar  = "calendar"  // id of a calendar, or "primary"
)

// A Resource is something that an action touches and a policy may name.
type Resource struct{ Kind, Value string }

// Providers lists the providers.
func Providers() []string { return []string{Gmail, GitHub, GoogleDrive, GoogleCalendar} }

// DefaultBaseURL returns where the provider's own interface is, "" for none that
// is known.
func DefaultBaseURL(provider string) string {
	switch provider {
	case Gmail:
		return "https://gmail.googleapis.com"
	case GitHub:
		return "https://api.github.com"
	case GoogleDrive, GoogleCalendar:
		return "https://www.googleapis.com"
	}
	return ""
}

// Actions lists what can be asked of a provider.
func Actions(provider string) []Action {
	var actions []Action
	for _, a := range catalogue[provider] {
		actions = append(actions, a.Action)
	}
	return actions
}

// ActionOf returns an action by its name.
func ActionOf(provider, name string) (Action, bool) {
	a, err := find(provider, name)
	return a.Action, err == nil
}

// Execute carries an action out and returns what came of it, an object. All
// errors are of type *[Error].
func Execute(ctx context.Context, c Call) (json.RawMessage, error) {
	act, args, err := parse(c.Provider, c.Action, c.Args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	result, err := act.run(ctx, newAPI(c), args)
	if err != nil {
		return nil, asError(ctx, err)
	}
	answer, err := json.Marshal(result)
	if err != nil {
		return nil, &Error{Code: CodeAPI, Message: "the answer can't be passed on"}
	}
	if len(answer) > MaxAnswer {
		return nil, tooLarge()
	}
	return answer, nil
}

// Resources returns what an action's arguments say that it touches. Its errors
// are those of [Execute] about arguments.
func Resources(provider, name string, raw json.RawMessage) ([]Resource, error) {
	_, args, err := parse(provider, name, raw)
	if err != nil {
		return nil, err
	}
	if r, ok := args.(interface{ resources() []Resource }); ok {
		return r.resources(), nil
	}
	return nil, nil
}

// Lookup asks the provider what else an action would touch: the sender of a
// message that is to be changed, the folder of a file. Nothing is asked, and
// nothing returned, for actions whose arguments or answers tell all. Its errors
// are those of [Execute].
func Lookup(ctx context.Context, c Call) ([]Resource, error) {
	act, args, err := parse(c.Provider, c.Action, c.Args)
	if err != nil || act.lookup == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	touched, err := act.lookup(ctx, newAPI(c), args)
	if err != nil {
		return nil, asError(ctx, err)
	}
	return touched, nil
}

// Filter takes from the answer of an action everything about which keep reports
// false for one of its resources, and returns how much that was. An answer that
// is about nothing else becomes {}. An error says that the answer isn't one of
// [Execute]; nothing of it may be shown then.
func Filter(provider, name string, answer json.RawMessage, keep func(kind, value string) bool) (json.RawMessage, int, error) {
	act, err := find(provider, name)
	if err != nil {
		return nil, 0, err
	}
	if act.filter == nil {
		return answer, 0, nil
	}
	return act.filter(answer, keep)
}

// An action is one row of the catalogue.
type action struct {
	Action
	args   func() any // a pointer to its arguments, which may have check and resources
	run    func(ctx context.Context, a *api, args any) (any, error)
	lookup func(ctx context.Context, a *api, args any) ([]Resource, error)
	filter func(answer json.RawMessage, keep func(kind, value string) bool) (json.RawMessage, int, error)
}

// catalogue holds the actions of each provider.
var catalogue = map[string][]action{
	Gmail:          gmailActions,
	GitHub:         githubActions,
	GoogleDrive:    driveActions,
	GoogleCalendar: calendarActions,
}

// reads and writes return the row of an action.
func reads[A, R any](name string, run func(context.Context, *api, *A) (R, error)) action {
	return action{
		Action: Action{name, true},
		args:   func() any { return new(A) },
		run:    func(ctx context.Context, a *api, args any) (any, error) { return run(ctx, a, args.(*A)) },
	}
}

func writes[A, R any](name string, run func(context.Context, *api, *A) (R, error)) action {
	act := reads(name, run)
	act.ReadOnly = false
	return act
}

// after has the action ask first what it touches.
func after[A any](act action, lookup func(context.Context, *api, *A) ([]Resource, error)) action {
	act.lookup = func(ctx context.Context, a *api, args any) ([]Resource, error) { return lookup(ctx, a, args.(*A)) }
	return act
}

// filtered has the action's answer of type R filtered: take reports how much it
// took, and clears an answer that is about nothing else.
func filtered[R any](act action, take func(answer *R, keep func(kind, value string) bool) int) action {
	act.filter = func(answer json.RawMessage, keep func(kind, value string) bool) (json.RawMessage, int, error) {
		var parsed R
		if err := protocol.UnmarshalStrict(answer, &parsed); err != nil {
			return nil, 0, fmt.Errorf("answer of %s: %w", act.Name, err)
		}
		withheld := take(&parsed, keep)
		if withheld == 0 {
			return answer, 0, nil
		}
		rest, err := json.Marshal(parsed)
		return rest, withheld, err
	}
	return act
}

func find(provider, name string) (action, error) {
	acts, ok := catalogue[provider]
	if !ok {
		return action{}, invalid("no such provider")
	}
	i := slices.IndexFunc(acts, func(a action) bool { return a.Name == name })
	if i < 0 {
		return action{}, invalid("%s has no such action", provider)
	}
	return acts[i], nil
}

// parse returns an action and its arguments, decoded and checked.
func parse(provider, name string, raw json.RawMessage) (action, any, error) {
	act, err := find(provider, name)
	if err != nil {
		return act, nil, err
	}
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	args := act.args()
	if err := protocol.UnmarshalStrict(raw, args); err != nil {
		return act, nil, invalid("arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if c, ok := args.(interface{ check() error }); ok {
		if err := c.check(); err != nil {
			return act, nil, err
		}
	}
	return act, args, nil
}
