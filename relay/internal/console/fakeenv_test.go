package console_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// fakeEnv is what people have set. Guarded by the relay's mu.
type fakeEnv struct {
	variables []op.EnvVariable
	values    map[string]string
	applied   []bool // of each request, whether running shells take part
}

func (f *fakeRelay) listEnv(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapEnv); !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer(w, 200, op.EnvList{Variables: append([]op.EnvVariable{}, f.env.variables...)})
}

func (f *fakeRelay) applyEnv(w http.ResponseWriter, r *http.Request) {
	if _, ok := f.may(w, r, protocol.CapEnv); !ok {
		return
	}
	var body struct {
		Set     map[string]string `json:"set"`
		Secrets map[string]struct {
			Value           string `json:"value"`
			BrokerProtected bool   `json:"broker_protected"`
		} `json:"secrets"`
		ApprovedDomains []struct {
			SecretName string `json:"secret_name"`
			Domain     string `json:"domain"`
		} `json:"approved_domains"`
		Unset    []string `json:"unset"`
		ApplyNow bool     `json:"apply_now"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		f.fault("env: %v", err)
	}
	for name := range body.Set {
		if err := protocol.CheckEnvName(name); err != nil {
			answer(w, 400, map[string]any{"error": protocol.AsError(err).Body()})
			return
		}
	}
	pty := protocol.PTYID(r.PathValue("pid"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.env.values == nil {
		f.env.values = make(map[string]string)
	}
	f.env.applied = append(f.env.applied, body.ApplyNow)
	put := func(v op.EnvVariable, value string) {
		f.env.drop(v.Name, pty)
		v.PTYID = pty
		f.env.variables = append(f.env.variables, v)
		f.env.values[v.Name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(body.Set)) {
		put(op.EnvVariable{Name: name}, body.Set[name])
	}
	for _, name := range slices.Sorted(maps.Keys(body.Secrets)) {
		v := op.EnvVariable{Name: name, Secret: true, BrokerProtected: body.Secrets[name].BrokerProtected}
		for _, domain := range body.ApprovedDomains {
			if domain.SecretName == name {
				v.Domains = append(v.Domains, domain.Domain)
			}
		}
		put(v, body.Secrets[name].Value)
	}
	for _, name := range body.Unset {
		f.env.drop(name, pty)
	}
	answer(w, 200, map[string]string{"status": "ok"})
}

func (e *fakeEnv) drop(name string, pty protocol.PTYID) {
	e.variables = slices.DeleteFunc(e.variables, func(v op.EnvVariable) bool { return v.Name == name && v.PTYID == pty })
}
