package integrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/vault"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// A VaultRotation says how to rotate the keys of the vault.
type VaultRotation struct {
	statedir.Location // of the control plane, which may be running

	KeyFile string
	NewKey  bool // put a new key first; else the first of the file stays
	DropOld bool // take the other keys out of the file, once nothing needs them
}

// A VaultReport says what a rotation did.
type VaultReport struct {
	KeyID    string // of the key that everything is sealed with now
	Resealed int    // accounts whose tokens were sealed with another one
}

const (
	rotationPasses = 3 // over all accounts: those that change meanwhile are found again
	rotationPage   = 200
)

// RotateVault seals the tokens of every account with the first key of the file.
// A control plane that runs there needs no restart. Errors name the accounts
// whose tokens could not be opened; no key is dropped then.
func RotateVault(ctx context.Context, cfg VaultRotation) (report VaultReport, err error) {
	keys, err := vault.Open(cfg.KeyFile)
	if err != nil {
		return report, err
	}
	st, err := cfg.OpenStore(ctx, nil)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if cfg.NewKey {
		data, err := vault.WithNewKey(cfg.KeyFile)
		if err == nil {
			err = program.ReplaceFile(cfg.KeyFile, data, private.Mode)
		}
		if err != nil {
			return report, err
		}
	}
	if report.KeyID, err = keys.KeyID(); err != nil {
		return report, err
	}
	for range rotationPasses {
		n, err := resealAll(ctx, st.Integrations, &tokens{vault: keys}, report.KeyID)
		report.Resealed += n
		if err != nil {
			return report, err
		}
		if n == 0 {
			break
		}
	}
	if !cfg.DropOld {
		return report, nil
	}
	data, err := vault.WithoutOldKeys(cfg.KeyFile)
	if err == nil {
		err = program.ReplaceFile(cfg.KeyFile, data, private.Mode)
	}
	return report, err
}

// resealAll goes once over all accounts, and returns how many it sealed anew.
func resealAll(ctx context.Context, st *store.Integrations, in *tokens, keyID string) (resealed int, err error) {
	after := ""
	var failed []error
	for {
		page, err := st.AllAccounts(ctx, after, rotationPage)
		if err != nil {
			return resealed, err
		}
		if len(page) == 0 {
			return resealed, errors.Join(failed...)
		}
		for _, a := range page {
			after = a.ID
			if a.KeyID == keyID {
				continue
			}
			if err := reseal(ctx, st, in, a); err != nil {
				failed = append(failed, fmt.Errorf("account %s: %w", a.ID, err))
				continue
			}
			resealed++
		}
	}
}

// reseal seals an account's tokens anew. One that got others meanwhile, or is
// gone, needs nothing: whoever changed it used the newest key.
func reseal(ctx context.Context, st *store.Integrations, in *tokens, a store.Account) error {
	t, err := in.open(a)
	if err != nil {
		return err
	}
	keyID, sealed, err := in.seal(a, t)
	if err != nil {
		return err
	}
	err = st.SetTokens(ctx, a.ID, a.Version, keyID, sealed)
	if kind := protocol.KindOf(err); err != nil && (kind == protocol.KindConflict || kind == protocol.KindNotFound) {
		return nil
	}
	return err
}
