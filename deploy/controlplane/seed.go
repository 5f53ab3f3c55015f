package controlplane

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

const maxSeedBytes = 64 << 20

// loadSeed loads the development users in the file at path. Errors name the
// file and quote no secret.
func loadSeed(ctx context.Context, st *store.Store, path string) error {
	data, err := private.Read(path, maxSeedBytes)
	if err != nil {
		return fmt.Errorf("development seed: %w", err)
	}
	var seed store.Seed
	if err := protocol.UnmarshalStrict(data, &seed); err != nil {
		return fmt.Errorf("development seed %s: %w", path, err)
	}
	if err := seed.Validate(); err != nil {
		return fmt.Errorf("development seed %s: %w", path, err)
	}
	if err := st.Load(ctx, &seed); err != nil {
		return fmt.Errorf("development seed %s: %w", path, err)
	}
	return nil
}
