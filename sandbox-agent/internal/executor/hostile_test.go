package executor

import (
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

var (
	attempts    = flag.Int("attempts", 3000, "what the hostile relay tries")
	hostileSeed = flag.Uint64("seed", 0, "of the hostile relay; 0: another each time")
)

// A loot is what a relay has seen: it can make none of it.
type loot struct {
	b      *bench
	random *rand.Rand
	ours   []string // commands for this sandbox; each may run once
	names  []string // what each of ours writes when it runs
	others []string // commands for others, expired ones, grants, certificates, lists
}

// gather signs what passes through a relay in a day.
func gather(b *bench, random *rand.Rand) *loot {
	l := &loot{b: b, random: random}
	for i := range 40 {
		c := b.command(fmt.Sprintf(`{"kind":"pty.create","command":"command %d"}`, i))
		c.Target.PTYID = protocol.PTYID(fmt.Sprintf("pty_%d", i%4))
		l.ours = append(l.ours, b.sign(c))
		l.names = append(l.names, fmt.Sprintf("create ses_1 %s command %d", c.Target.PTYID, i))
		c.CommandID = protocol.NewCommandID()
		switch i % 4 {
		case 0:
			c.Target.SandboxID = "sb_2"
		case 1:
			c.Audience = jws.AudienceExtension
		case 2:
			c.IssuedAt -= 600_000
		case 3:
			c.Target.SandboxID = ""
		}
		l.others = append(l.others, b.sign(c))
	}
	grant, err := b.signer.SignGrant(jws.Grant{
		Subject: "usr_1", Sandbox: sandbox, Dashboard: "dash_1", PTYs: []string{jws.AllPTYs}, Caps: protocol.Capabilities,
		IssuedAt: start.Unix(), ExpiresAt: start.Unix() + 600, ID: "gr_1",
	})
	must(b.t, err)
	device, err := jws.GenerateDeviceKey()
	must(b.t, err)
	certificate, err := b.signer.SignCertificate(jws.Certificate{
		Subject: sandbox, ID: "crt_1", IssuedAt: start.Unix(), ExpiresAt: start.Unix() + 3600, JWK: device.PublicJWK(),
	})
	must(b.t, err)
	stranger, err := jws.ParseSigner(strangerKey(b))
	must(b.t, err)
	forged, err := stranger.SignCommand(b.command(`{"kind":"pty.create","command":"forged"}`))
	must(b.t, err)
	l.others = append(l.others, grant, certificate, forged)
	return l
}

// strangerKey is a key of the relay's own, under the kid of the control plane.
func strangerKey(b *bench) []byte {
	made, err := jws.GenerateSigner()
	must(b.t, err)
	file, err := made.MarshalPrivate()
	must(b.t, err)
	return []byte(strings.Replace(string(file), made.Kid(), b.signer.Kid(), 1))
}

func (l *loot) any() string {
	if l.random.IntN(2) == 0 {
		return l.ours[l.random.IntN(len(l.ours))]
	}
	return l.others[l.random.IntN(len(l.others))]
}

// attempt is one thing that the relay tries.
func (l *loot) attempt() string {
	token := l.any()
	switch l.random.IntN(10) {
	case 0, 1: // replay, reorder, cross
		return token
	case 2: // flip a bit
		flipped := []byte(token)
		flipped[l.random.IntN(len(flipped))] ^= 1 << l.random.IntN(8)
		return string(flipped)
	case 3: // put together what was not signed together
		parts, other := strings.Split(token, "."), strings.Split(l.any(), ".")
		parts[l.random.IntN(3)] = other[l.random.IntN(3)]
		return strings.Join(parts, ".")
	case 4: // cut
		return token[:l.random.IntN(len(token))]
	case 5: // splice
		at := l.random.IntN(len(token))
		return token[:at] + l.any()[l.random.IntN(20):] + token[at:]
	case 6: // retarget, without the key
		return l.rewrite(token, func(text string) string {
			for _, change := range [][2]string{{"sb_2", "sb_1"}, {"browser-extension", "sandbox-agent"}, {"pty_1", "pty_2"}, {"command ", "other "}, {"cmd_", "cmd_x"}} {
				if l.random.IntN(2) == 0 {
					text = strings.Replace(text, change[0], change[1], 1)
				}
			}
			return text
		})
	case 7: // a longer life
		return l.rewrite(token, func(text string) string { return strings.Replace(text, `"ttlMs":30000`, `"ttlMs":600000`, 1) })
	case 8: // the other signature of the same
		return twin(token)
	}
	return `{"payload":"` + token + `"}`
}

// rewrite changes a token's payload and leaves its signature.
func (l *loot) rewrite(token string, change func(string) string) string {
	parts := strings.Split(token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(l.b.t, err)
	parts[1] = base64.RawURLEncoding.EncodeToString([]byte(change(string(payload))))
	return strings.Join(parts, ".")
}

// twin returns token with the other one of the two signatures that ECDSA has.
func twin(token string) string {
	at := strings.LastIndexByte(token, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(token[at:])
	if err != nil || len(signature) != 64 {
		return token
	}
	s := new(big.Int).SetBytes(signature[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])
	return token[:at] + base64.RawURLEncoding.EncodeToString(signature)
}

// TestHostileRelay has a relay do to commands whatever it can, from several
// tunnels at once, while the agent is started again and again. A command that
// was signed for this sandbox may run, once; nothing else ever does.
func TestHostileRelay(t *testing.T) {
	seed := *hostileSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d -attempts %d", seed, *attempts)
	b := newBench(t)
	dir := b.withAudit()
	l := gather(b, rand.New(rand.NewPCG(seed, 0)))
	const rounds, tunnels = 10, 4
	answers := make(map[string]string) // of good outcomes, by command
	var mu sync.Mutex
	for range rounds {
		var relay sync.WaitGroup
		for range tunnels {
			tokens := make([]string, *attempts/rounds/tunnels)
			for i := range tokens {
				tokens[i] = l.attempt()
			}
			relay.Go(func() {
				for _, token := range tokens {
					var c protocol.ExecutionCallback
					result := b.Execute(t.Context(), token)
					must(t, json.Unmarshal(result.Callback, &c))
					if c.Status == protocol.StatusError {
						continue
					}
					mu.Lock()
					if first, ok := answers[string(c.CommandID)]; ok && first != string(result.Callback) {
						t.Errorf("%s is answered as %s and %s", c.CommandID, first, result.Callback)
					}
					answers[string(c.CommandID)] = string(result.Callback)
					mu.Unlock()
				}
			})
		}
		relay.Wait()
		b.advance(time.Second)
		must(t, b.Ledger.Close())
		b.open()
	}
	ran := make(map[string]int)
	for _, call := range b.terminals.called() {
		ran[call]++
	}
	for i, name := range l.names {
		if ran[name] > 1 {
			t.Errorf("%q ran %d times", name, ran[name])
		}
		if ran[name] == 1 && answers[commandID(t, l.ours[i])] == "" {
			t.Errorf("%q ran and had no answer", name)
		}
		delete(ran, name)
	}
	if len(ran) != 0 {
		t.Errorf("ran %v, which nobody signed for this sandbox", ran)
	}
	if recorded := b.recorded(dir); len(recorded) != len(b.terminals.called()) {
		t.Errorf("%d commands ran, %d are recorded", len(b.terminals.called()), len(recorded))
	}
	t.Logf("%d of %d commands ran, rejects: %v", len(answers), len(l.ours), b.Rejects())
}

func commandID(t *testing.T, token string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must(t, err)
	var c jws.Command
	must(t, json.Unmarshal(payload, &c))
	return string(c.CommandID)
}

// FuzzExecute: whatever comes, nothing runs that wasn't signed.
func FuzzExecute(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIiwidHlwIjoiY29tbWFuZCtqd3MifQ.e30." + strings.Repeat("A", 86))
	f.Fuzz(func(t *testing.T, token string) {
		b := newBench(t)
		if c, _ := b.execute(token); c.Status != protocol.StatusError || len(b.terminals.called()) != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// BenchmarkExecute is a command that does nothing, from its arrival to its
// outcome: verified, recorded, signed.
func BenchmarkExecute(b *testing.B) {
	x, tokens := benchExecutor(b)
	b.ResetTimer()
	for _, token := range tokens {
		x.Execute(b.Context(), token)
	}
}

// BenchmarkExecute100 has a hundred at the same time.
func BenchmarkExecute100(b *testing.B) {
	x, tokens := benchExecutor(b)
	b.ResetTimer()
	var all sync.WaitGroup
	next := make(chan string, len(tokens))
	for _, token := range tokens {
		next <- token
	}
	close(next)
	for range 100 {
		all.Go(func() {
			for token := range next {
				x.Execute(b.Context(), token)
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}

func benchExecutor(tb *testing.B) (*bench, []string) {
	tb.Helper()
	b := newBench(tb)
	b.withAudit()
	tokens := make([]string, tb.N)
	for i := range tokens {
		tokens[i] = b.sign(b.command(`{"kind":"session.create"}`))
	}
	return b, tokens
}
