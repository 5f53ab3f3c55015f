package sandboxapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// An envRequest is the body of POST …/env, as seed 001's clients write it.
type envRequest struct {
	Set             map[string]string    `json:"set"`
	Secrets         map[string]envSecret `json:"secrets"`
	ApprovedDomains []envDomain          `json:"approved_domains"`
	Unset           []string             `json:"unset"`
	ApplyNow        bool                 `json:"apply_now"`
}

type envSecret struct {
	Value           string `json:"value"`
	BrokerProtected bool   `json:"broker_protected"`
}

type envDomain struct {
	SecretName   string `json:"secret_name"`
	Domain       string `json:"domain"`
	HeaderName   string `json:"header_name"`
	HeaderFormat string `json:"header_format"`
}

// op returns the operation that e asks for.
func (e envRequest) op() op.EnvApply {
	apply := op.EnvApply{Set: e.Set, Unset: e.Unset, ApplyNow: e.ApplyNow}
	if len(e.Secrets) > 0 {
		apply.Secrets = make(map[string]protocol.EnvSecret, len(e.Secrets))
	}
	for name, secret := range e.Secrets {
		apply.Secrets[name] = protocol.EnvSecret(secret)
	}
	for _, domain := range e.ApprovedDomains {
		apply.ApprovedDomains = append(apply.ApprovedDomains, protocol.ApprovedDomain{
			Secret: domain.SecretName, Domain: domain.Domain, HeaderName: domain.HeaderName, HeaderFormat: domain.HeaderFormat,
		})
	}
	return apply
}

// applyEnv is POST /sessions/{sid}/env and …/ptys/{pid}/env (seed 001): 200
// {status}. The control plane seals the values to the sandbox before it signs.
// The relay holds them only until then; they are never in the stored command, a
// log or an answer.
func (a *API) applyEnv(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapEnv)
	var apply op.EnvApply
	if err == nil {
		var body envRequest
		if err = access.ReadJSON(w, r, &body); err == nil {
			apply = body.op()
			err = apply.Check() // before a value leaves
		}
	}
	if err == nil {
		_, err = a.changeWith(r, token, op.Op{Kind: op.KindEnvApply, Body: &apply}, target(r, grant), decideTimes)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
