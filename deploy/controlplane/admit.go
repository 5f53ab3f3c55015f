package controlplane

import (
	"context"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// admit returns a user token for whom the provider vouches for, if they may
// come in: KindForbidden if not.
func (s *Server) admit(ctx context.Context, id oidc.Identity) (token string, err error) {
	user, err := s.userOf(ctx, id)
	if err != nil {
		return "", err
	}
	token = "ut_" + web.Secret()
	if err := s.store.People.AddToken(ctx, user.ID, token, "sign-in", s.clock.Now().Add(tokenLife)); err != nil {
		return "", err
	}
	s.usage.Count("", user.ID, store.UsageSignIns)
	s.logger.Info("signed in", "user", user.ID)
	return token, nil
}

// userOf returns the user whom id stands for. The first time that is the user
// who was invited by its address, or a new one where sign-up is allowed; from
// then on only issuer and subject count, whatever address the provider tells.
func (s *Server) userOf(ctx context.Context, id oidc.Identity) (store.User, error) {
	user, err := s.store.People.UserByIdentity(ctx, id.Issuer, id.Subject)
	if err == nil || protocol.KindOf(err) != protocol.KindNotFound {
		return user, err
	}
	if id.Email != "" {
		user, err = s.store.People.InvitedUser(ctx, id.Email)
		if err == nil {
			return s.store.People.LinkIdentity(ctx, id.Issuer, id.Subject, user)
		}
		if protocol.KindOf(err) != protocol.KindNotFound {
			return store.User{}, err
		}
	}
	if !s.login.cfg.allows(id) {
		return store.User{}, protocol.Errorf(protocol.KindForbidden,
			"nobody has invited you here: ask for an invitation to your address")
	}
	user = store.User{ID: protocol.NewUserID(), Name: id.Name, Email: id.Email}
	if user.Name == "" {
		user.Name, _, _ = strings.Cut(id.Email, "@")
	}
	if user.Name == "" {
		user.Name = string(user.ID)
	}
	return s.store.People.LinkIdentity(ctx, id.Issuer, id.Subject, user)
}

// allows reports whether id may come without an invitation.
func (cfg *LoginConfig) allows(id oidc.Identity) bool {
	_, domain, _ := strings.Cut(id.Email, "@")
	return cfg.AllowSignUp || domain != "" && slices.Contains(cfg.AllowedDomains, domain)
}
