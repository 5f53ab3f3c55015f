package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

var (
	mutations = flag.Int("pages.mutations", 4_000, "mutated tokens of which Go and the extension must think the same")
	seed      = flag.Uint64("pages.seed", 0, "repeats the mutations of a run; 0: new ones")
)

var (
	b64    = base64.RawURLEncoding
	at     = time.UnixMilli(1730000000000)
	header = `{"alg":"ES256","kid":"k1","typ":"command+jws"}`
	whole  = `{"iss":"control-server","aud":"browser-extension","commandId":"cmd_1","traceId":"tr_1","issuedAt":1730000000000,"ttlMs":30000,` +
		`"target":{"sessionId":"ses_1","extensionId":"iiccclfiiimldghpdoopenbcnepmabgb","tabId":123},` +
		`"op":{"kind":"cdp.send","method":"Runtime.evaluate","params":{"expression":"1+1 \u00e9\ud83d\ude00","silent":true}},` +
		`"reply":{"url":"https://control.example/control/callback","callbackToken":"ct_1"},"grantId":"gr_1","userId":"usr_1"}`
)

// A judged is a token with the key set that it is tried with, and what Go says.
type judged struct {
	Token string `json:"token"`
	Set   int    `json:"set"`

	what, verdict string
}

type vectors struct {
	DefaultJWKS json.RawMessage `json:"default_jwks"`
	D           string          `json:"signing_key_p256_d"`
	Rows        []struct {
		ID    string          `json:"id"`
		Token *string         `json:"token"`
		JWKS  json.RawMessage `json:"jwks"`
	} `json:"rows"`
}

// TestVerdicts has the extension's decoder and Go's judge the same tokens: the rows
// of the vectors, and mutations of valid ones, signed anew where their signature
// would decide it all. Half of the mutations change how a member is spelled.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	node := node(t)
	file := readVectors(t)
	key := file.key(t)
	sets := []string{string(file.DefaultJWKS)}
	cases := file.cases(t, key, &sets)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-pages.seed=%d, %d rows, %d mutations", *seed, len(cases), *mutations)
	random := rand.New(rand.NewPCG(*seed, 1))
	for range *mutations {
		cases = append(cases, mutate(random, key))
	}
	judge(t, sets, cases)
	answers, folded := ask(t, node, sets, cases)
	wrong, accepted := 0, 0
	for i, c := range cases {
		if c.verdict == "ok" {
			accepted++
		}
		if answers[i] != c.verdict && wrong < 20 {
			wrong++
			t.Errorf("%s: the extension says %s, Go %s\n%s", c.what, answers[i], c.verdict, shown(c.Token))
		}
	}
	for i, pair := range pairs() {
		if want := protocol.FoldName(pair[0]) == protocol.FoldName(pair[1]); folded[i] != want {
			t.Errorf("%q and %q are one name: %v, Go %v", pair[0], pair[1], folded[i], want)
		}
	}
	t.Logf("%d of %d tokens are accepted by both", accepted, len(cases))
	if accepted < len(cases)/100 {
		t.Error("hardly any is valid: the mutations show nothing")
	}
}

func readVectors(t *testing.T) (file vectors) {
	t.Helper()
	data, err := os.ReadFile("../../../protocol/jws/testdata/jws.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (file vectors) key(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	d, err := b64.DecodeString(file.D)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// cases are the rows, those without a token built as they are described.
func (file vectors) cases(t *testing.T, key *ecdsa.PrivateKey, sets *[]string) []judged {
	t.Helper()
	var list []judged
	for _, row := range file.Rows {
		set := 0
		if row.JWKS != nil {
			*sets = append(*sets, string(row.JWKS))
			set = len(*sets) - 1
		}
		if row.Token != nil {
			list = append(list, judged{Token: *row.Token, Set: set, what: row.ID})
			continue
		}
		list = append(list, build1(row.ID, key, sets))
	}
	if len(list) != 68 {
		t.Fatalf("%d rows, want 68", len(list))
	}
	return list
}

// build1 builds a row that the file only describes.
func build1(id string, key *ecdsa.PrivateKey, sets *[]string) judged {
	huge := strings.Repeat("x", 1<<20)
	point, _ := key.PublicKey.Bytes()
	jwk := func(x, more string) {
		*sets = append(*sets, fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","kid":"k1","x":%q,"y":%q%s}]}`, x, b64.EncodeToString(point[33:]), more))
	}
	head, payload, x := header, whole, b64.EncodeToString(point[1:33])
	edit := func(old, changed string) { payload = strings.Replace(whole, old, changed, 1) }
	before := len(*sets)
	switch id {
	case "S6":
		return judged{what: id}
	case "K7":
		head = `{"alg":"ES256","kid":"` + huge + `"}`
	case "H11":
		head = `{"alg":"ES256","kid":"k1","x":"` + huge + `"}`
	case "P1":
		payload = `{"x":"` + huge + `"}`
	case "J0":
		jwk(x, "")
	case "J2":
		jwk(b64.EncodeToString(point[2:33]), "")
	case "J4":
		jwk(x, `,"d":"AA"`)
	case "J6":
		*sets = append(*sets, `{}`)
	case "L2":
		edit(`"iss":"control-server",`, "")
	case "L4":
		edit(`"aud":"browser-extension",`, "")
	case "L6":
		edit("browser-extension", "Browser-Extension")
	case "L8":
		edit("1730000000000", "1")
	case "L10":
		edit(`"method":`, `"method":"Page.navigate","method":`)
	}
	c := judged{Token: sign(key, head, payload), what: id}
	if len(*sets) > before {
		c.Set = before
	}
	return c
}

func sign(key *ecdsa.PrivateKey, head, payload string) string {
	input := b64.EncodeToString([]byte(head)) + "." + b64.EncodeToString([]byte(payload))
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(crand.Reader, key, sum[:])
	if err != nil {
		panic(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return input + "." + b64.EncodeToString(signature)
}

// pieces are what parsers disagree about.
var pieces = []string{
	`"ttlMs":30000,`, `"TTLMS":1,`, `"op":{},`, `"Op":{},`, `"later":1,`, `"":1,`, `null`, `3e4`, `-0`, `1.0`, `01`, `9223372036854775808`, `-9223372036854775808`,
	"\xff", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xef\xbb\xbf", " ", "\t", "\r\n", "\v", "\f", "\u00a0", "\u2028", "\x00", `\u0000`, `\ud800`, `\udc00`, `\u0069`, `\x`,
	`{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `{}`, `[]`, `{"a":1,"A":2}`, `{"a":1,"a":1}`, `"ſ":1,"S":2,`, "\"\u212aind\":1,", `"aud":"sandbox-agent",`, `"tabId":0,`, `"url":"x",`, `true`, `"x":[{"b":1},{"b":1}],`, `/**/`, `"x":1e400,`,
}

// mutate changes a valid token somewhere: in its text, its header, its payload.
func mutate(r *rand.Rand, key *ecdsa.PrivateKey) judged {
	head, payload := header, whole
	if r.IntN(2) == 0 {
		head = `{"alg":"ES256","kid":"k1"}`
	}
	switch r.IntN(4) {
	case 0:
		token := sign(key, head, payload)
		return judged{Token: strings.ToValidUTF8(damage(r, token, []string{".", "=", "-", "_", "+", "/", " ", "\n", "A", "\u00e9"}), "?"), what: "token"}
	case 1:
		head = damage(r, head, pieces)
	default:
		payload = damage(r, payload, pieces)
	}
	return judged{Token: sign(key, head, payload), what: "signed anew"}
}

// damage makes one to three changes.
func damage(r *rand.Rand, text string, pieces []string) string {
	b := []byte(text)
	for range 1 + r.IntN(3) {
		i := r.IntN(len(b))
		switch r.IntN(6) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b = slices.Delete(b, i, min(len(b), i+1+r.IntN(8)))
		case 2:
			b = slices.Insert(b, i, b[r.IntN(len(b))])
		case 3: // in place of a value or a name
			if names := bytes.IndexByte(b[i:], '"'); names >= 0 {
				b = slices.Insert(b, i+names, []byte(pieces[r.IntN(len(pieces))])...)
			}
		case 4:
			b[i] ^= 0x20 // the other case
		default:
			b = slices.Insert(b, i, []byte(pieces[r.IntN(len(pieces))])...)
		}
		if len(b) == 0 {
			return ""
		}
	}
	return string(b)
}

// judge fills in what Go says.
func judge(t *testing.T, sets []string, cases []judged) {
	t.Helper()
	var keys []*jws.Keys
	for _, text := range sets {
		set, err := jws.ParseKeySet([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, jws.NewKeys(set, jws.KeysOptions{Now: func() time.Time { return at }}))
	}
	for i, c := range cases {
		cases[i].verdict = "ok"
		if _, err := keys[c.Set].Command(t.Context(), c.Token, jws.AudienceExtension); err != nil {
			cases[i].verdict = protocol.AsError(err).Body().Name
		}
	}
}

// ask has the extension say what it thinks.
func ask(t *testing.T, node string, sets []string, cases []judged) (answers []string, folded []bool) {
	t.Helper()
	dir := t.TempDir()
	options, err := options(console)
	if err != nil {
		t.Fatal(err)
	}
	options.EntryPoints, options.Outdir = []string{filepath.Join(web, "src/pages/verdicts.ts")}, dir
	options.OutExtension, options.Platform, options.Write = map[string]string{".js": ".mjs"}, api.PlatformNode, true
	if err := bundle.Failed(api.Build(options).Errors); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, c := range cases {
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	about, err := json.Marshal(map[string]any{"now": at.UnixMilli(), "sets": sets, "names": pairs()})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "about.json"), about, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tokens"), lines.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(node, filepath.Join(dir, "verdicts.mjs"), filepath.Join(dir, "tokens"), filepath.Join(dir, "about.json")).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said struct {
		Answers []string
		Folded  []bool
	}
	if err := json.Unmarshal(out, &said); err != nil || len(said.Answers) != len(cases) {
		t.Fatalf("%d answers (%v)", len(said.Answers), err)
	}
	return said.Answers, said.Folded
}

// pairs are names that may be one: every character that has another case.
func pairs() (list [][2]string) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		for next := unicode.SimpleFold(r); next > r; next = unicode.SimpleFold(next) {
			list = append(list, [2]string{"a" + string(r), "a" + string(next)})
		}
	}
	for _, near := range [][2]string{{"ı", "i"}, {"İ", "i"}, {"ß", "ss"}, {"ﬁ", "fi"}, {"é", "e\u0301"}, {"a", "b"}, {"I", "l"}} {
		list = append(list, near)
	}
	return list
}

// shown is a token for eyes.
func shown(token string) string {
	var text []string
	for part := range strings.SplitSeq(token, ".") {
		decoded, err := b64.DecodeString(part)
		if err != nil || len(text) == 2 {
			decoded = []byte(part)
		}
		text = append(text, fmt.Sprintf("%.600q", decoded))
	}
	return strings.Join(text, "\n")
}
