package cookies

import (
	"path/filepath"

	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// readPolicy reads the policy of the session whose folder is dir, each time anew. Without
// one all sites pass; one that can't be read lets nothing pass.
func readPolicy(dir string) (*seal.Policy, error) {
	file, err := sitepolicy.Read(policyPath(dir))
	if err != nil {
		return nil, fault("the sandbox's policy can't be read, so nothing is taken", err)
	}
	policy, err := file.Compile()
	if err != nil {
		return nil, fault("the sandbox's policy can't be read, so nothing is taken", err)
	}
	return policy, nil
}

func policyPath(dir string) string { return filepath.Join(dir, sitepolicy.Name) }

// tellPolicy tells people of the policy. The error is for the log.
func tellPolicy(dir string) (op.SyncPolicyState, error) {
	state := op.SyncPolicyState{Domains: []op.SyncDomain{}}
	file, err := sitepolicy.Read(policyPath(dir))
	if err != nil {
		state.Error = sitepolicy.Name + " can't be read: no cookies are taken until it is right again"
		return state, err
	}
	state.Policy = file.Mode()
	for _, d := range file.Domains {
		state.Domains = append(state.Domains, op.SyncDomain(d))
	}
	return state, nil
}

// policyFile is the file of what somebody asks for.
func policyFile(asked *op.SyncPolicy) sitepolicy.File {
	file := sitepolicy.File{Policy: asked.Policy, Domains: make([]sitepolicy.Domain, 0, len(asked.Domains))}
	for _, d := range asked.Domains {
		file.Domains = append(file.Domains, sitepolicy.Domain(d))
	}
	return file
}
