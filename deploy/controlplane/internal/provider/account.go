package provider

import (
	"context"
	"net/http"
	"net/url"
)

// Account asks a provider for the name of the account that client's token is
// for: its e-mail address, at GitHub its login. baseURL is that of a [Call]. All
// errors are of type *[Error].
func Account(ctx context.Context, provider string, client *http.Client, baseURL string) (string, error) {
	if DefaultBaseURL(provider) == "" {
		return "", invalid("no such provider")
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	name, err := newAPI(Call{Provider: provider, Client: client, BaseURL: baseURL}).account(ctx)
	if err != nil {
		return "", asError(ctx, err)
	}
	if name == "" || len(name) > 254 || words(name) != name {
		return "", failed("the account has no name")
	}
	return name, nil
}

func (a *api) account(ctx context.Context) (string, error) {
	var found struct {
		Address string `json:"emailAddress"` // Gmail
		ID      string `json:"id"`           // Calendar
		User    struct {
			Address string `json:"emailAddress"`
		} `json:"user"` // Drive
	}
	r := request{method: http.MethodGet}
	switch a.provider {
	case Gmail:
		r.path = "/gmail/v1/users/me/profile"
	case GitHub:
		var user login // its id is no text
		_, err := a.json(ctx, request{method: http.MethodGet, path: "/user"}, nil, &user)
		return user.Login, err
	case GoogleDrive:
		r.path, r.query = "/drive/v3/about", url.Values{"fields": {"user(emailAddress)"}}
	case GoogleCalendar:
		r.path = "/calendar/v3/calendars/primary"
	}
	if _, err := a.json(ctx, r, nil, &found); err != nil {
		return "", err
	}
	return or(found.Address, or(found.User.Address, found.ID)), nil
}
