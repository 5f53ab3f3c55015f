package broker

import "strings"

// A provider is an API whose key the broker puts into requests.
type provider struct {
	name   string
	host   string   // always https, port 443
	base   string   // base path for clients' paths
	whole  []string // paths used as they are, besides base itself
	header string   // that carries the key
	prefix string   // before the key
	keys   []string // variables that hold the key, the usual one first
	urls   []string // variables by which clients find the broker
}

// providers is the one table of providers. If two use one URL variable, the
// later one wins.
var providers = []provider{
	{
		name: "anthropic", host: "api.anthropic.com", header: "X-Api-Key",
		keys: []string{"ANTHROPIC_API_KEY"}, urls: []string{"ANTHROPIC_BASE_URL"},
	},
	{
		name: "openai", host: "api.openai.com", base: "/v1", header: "Authorization", prefix: "Bearer ",
		keys: []string{"OPENAI_API_KEY"}, urls: []string{"OPENAI_BASE_URL"},
	},
	{
		name: "google", host: "generativelanguage.googleapis.com", header: "X-Goog-Api-Key",
		keys: []string{"GOOGLE_API_KEY"}, urls: []string{"GOOGLE_BASE_URL", "GOOGLE_GEMINI_BASE_URL"},
	},
	{
		name: "gemini", host: "generativelanguage.googleapis.com", header: "X-Goog-Api-Key",
		keys: []string{"GEMINI_API_KEY"}, urls: []string{"GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"},
	},
	{
		name: "elevenlabs", host: "api.elevenlabs.io", header: "Xi-Api-Key",
		keys: []string{"ELEVENLABS_API_KEY"}, urls: []string{"ELEVENLABS_BASE_URL"},
	},
	{
		name: "deepgram", host: "api.deepgram.com", header: "Authorization", prefix: "Token ",
		keys: []string{"DEEPGRAM_API_KEY"}, urls: []string{"DEEPGRAM_BASE_URL"},
	},
	{
		name: "groq", host: "api.groq.com", base: "/openai/v1", header: "Authorization", prefix: "Bearer ",
		keys: []string{"GROQ_API_KEY"}, urls: []string{"GROQ_BASE_URL"},
	},
	{
		name: "together", host: "api.together.xyz", base: "/v1", header: "Authorization", prefix: "Bearer ",
		keys: []string{"TOGETHER_API_KEY"}, urls: []string{"TOGETHER_BASE_URL"},
	},
	{
		name: "fireworks", host: "api.fireworks.ai", base: "/inference/v1", header: "Authorization", prefix: "Bearer ",
		keys: []string{"FIREWORKS_API_KEY"}, urls: []string{"FIREWORKS_BASE_URL"},
	},
	{
		name: "mistral", host: "api.mistral.ai", base: "/v1", header: "Authorization", prefix: "Bearer ",
		keys: []string{"MISTRAL_API_KEY"}, urls: []string{"MISTRAL_BASE_URL"},
	},
	{
		name: "cohere", host: "api.cohere.ai", base: "/v1", whole: []string{"/v2"}, header: "Authorization", prefix: "Bearer ",
		keys: []string{"COHERE_API_KEY", "CO_API_KEY"}, urls: []string{"COHERE_BASE_URL", "CO_API_URL"},
	},
	{
		name: "replicate", host: "api.replicate.com", base: "/v1", header: "Authorization", prefix: "Token ",
		keys: []string{"REPLICATE_API_TOKEN"}, urls: []string{"REPLICATE_BASE_URL", "REPLICATE_API_BASE_URL"},
	},
	{
		name: "huggingface", host: "router.huggingface.co", header: "Authorization", prefix: "Bearer ",
		keys: []string{"HUGGINGFACE_API_KEY", "HF_TOKEN"}, urls: []string{"HUGGINGFACE_BASE_URL", "HF_INFERENCE_ENDPOINT"},
	},
	{
		name: "openrouter", host: "openrouter.ai", base: "/api/v1", header: "Authorization", prefix: "Bearer ",
		keys: []string{"OPENROUTER_API_KEY"}, urls: []string{"OPENROUTER_BASE_URL"},
	},
}

func findProvider(name string) (provider, bool) {
	for _, p := range providers {
		if p.name == name {
			return p, true
		}
	}
	return provider{}, false
}

// path returns a client's path at the provider. Some clients add the base
// themselves; it is not doubled.
func (p provider) path(rest string) string {
	if rest == "" {
		rest = "/"
	}
	for _, whole := range append([]string{p.base}, p.whole...) {
		if whole != "" && under(rest, whole) {
			return rest
		}
	}
	return p.base + rest
}

// rest returns the client's path for a path at the provider, false if there is
// none.
func (p provider) rest(path string) (string, bool) {
	for _, whole := range p.whole {
		if under(path, whole) {
			return path, true
		}
	}
	if !under(path, p.base) {
		return "", false
	}
	return strings.TrimPrefix(path, p.base), true
}

func under(path, base string) bool { return path == base || strings.HasPrefix(path, base+"/") }
