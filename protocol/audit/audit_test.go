package audit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

const sandbox = protocol.SandboxID("sb_1")

var start = time.UnixMilli(1_790_000_000_000)

// A device signs heads, as an agent's key does.
type device struct {
	key    *ecdsa.PrivateKey
	opened Opened
}

func newDevice(t testing.TB) device {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	point, err := key.PublicKey.Bytes()
	must(t, err)
	public := Key{"EC", "P-256", base64url.EncodeToString(point[1:33]), base64url.EncodeToString(point[33:])}
	return device{key, Opened{Format: Format, Sandbox: sandbox, Device: public.Thumbprint(), Key: public}}
}

func (d device) sign(transcript []byte) ([]byte, error) {
	sum := sha256.Sum256(transcript)
	return ecdsa.SignASN1(rand.Reader, d.key, sum[:])
}

// A journal is a log of two files in the making.
type journal struct {
	t     testing.TB
	by    device
	chain Chain
	files [][]byte
	heads []protocol.AuditHead
}

func (j *journal) file() *[]byte { return &j.files[len(j.files)-1] }

func (j *journal) begin() {
	j.files = append(j.files, nil)
	o := j.by.opened
	j.add(Record{Opened: &o})
}

func (j *journal) add(r Record) {
	r.At = start.UnixMilli() + int64(j.chain.Last())
	*j.file() = j.chain.Append(*j.file(), r)
}

func (j *journal) head() {
	j.t.Helper()
	data, head, signature, err := j.chain.AppendHead(*j.file(), sandbox, start, j.by.sign)
	must(j.t, err)
	if !verify(&j.by.key.PublicKey, protocol.AuditTranscript(sandbox, head.Sequence, head.Hash), signature) {
		j.t.Fatal("a head isn't what AuditTranscript says")
	}
	*j.file() = data
	j.heads = append(j.heads, head)
}

func (j *journal) command(i int) {
	j.add(Record{Command: &Command{
		ID: protocol.CommandID(fmt.Sprintf("cmd_%d", i)), Trace: "tr_1", Op: "pty.create", Session: "ses_1",
		User: "usr_1", Grant: "gr_1", Status: protocol.StatusOK, Duration: int64(i),
	}})
}

func (j *journal) lease(i int) {
	j.add(Record{Lease: &Lease{
		Session: "ses_1", PTY: "pty_1", Revision: uint64(i), Term: 1, State: protocol.LeaseHeld, Holder: "usr_1", Grant: "gr_1", Cause: "granted <&> ",
	}})
}

// sample is a log of one file with every kind of record and three heads.
func sample(t testing.TB, by device) *journal {
	t.Helper()
	j := &journal{t: t, by: by}
	j.begin()
	j.command(1)
	j.lease(2)
	j.head()
	j.add(Record{Resumed: &Resumed{Dropped: 7}})
	j.add(Record{Approval: &Approval{ID: "ap_1", About: "example.com:443", Decision: "allow", User: "usr_1"}})
	j.add(Record{Lost: &Lost{Leases: 3}})
	j.head()
	j.command(9)
	j.head()
	return j
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// check verifies files and returns what is wrong with them.
func check(expect Expect, files ...[]byte) (Report, error) {
	v := NewVerifier(expect)
	for _, data := range files {
		if err := v.File(bytes.NewReader(data)); err != nil {
			break
		}
	}
	return v.Report()
}

func wantFault(t testing.TB, err error, sequence uint64, nature Nature) {
	t.Helper()
	var f *Fault
	if !errors.As(err, &f) || f.Sequence != sequence || f.Nature != nature {
		t.Errorf("got %v; want record %d %s", err, sequence, nature)
	}
}

func TestWholeLog(t *testing.T) {
	by := newDevice(t)
	j := sample(t, by)
	report, err := check(Expect{Sandbox: sandbox, Device: by.opened.Device, First: 1, Heads: j.heads}, j.files[0])
	must(t, err)
	if report.First != 1 || report.Last != 10 || report.Head != j.heads[2] || report.Records[KindCommand] != 2 || report.Records[KindHead] != 3 {
		t.Errorf("%+v", report)
	}
	if len(report.Notes) != 2 || report.Sandbox != sandbox || report.Device != by.opened.Device {
		t.Errorf("%+v", report)
	}
}

// TestFiles: the chain goes on in the next file, and files may be read as one,
// or without the first.
func TestFiles(t *testing.T) {
	by := newDevice(t)
	j := sample(t, by)
	j.begin()
	j.command(12)
	j.head()
	report, err := check(Expect{Heads: j.heads}, j.files...)
	must(t, err)
	if report.Last != 13 {
		t.Errorf("%+v", report)
	}
	_, err = check(Expect{}, bytes.Join(j.files, nil))
	must(t, err)
	report, err = check(Expect{First: 11, Heads: j.heads}, j.files[1])
	must(t, err)
	if report.First != 11 || len(report.Notes) != 1 {
		t.Errorf("%+v", report)
	}
	_, err = check(Expect{}, j.files[1], j.files[0])
	wantFault(t, err, 1, Reordered)
	_, err = check(Expect{First: 1}, j.files[1])
	wantFault(t, err, 1, Deleted)
	_, err = check(Expect{Heads: j.heads}, j.files[0])
	wantFault(t, err, 11, CutOff)
	first := bytes.SplitAfter(j.files[1], []byte("\n"))
	_, err = check(Expect{}, j.files[0], bytes.Join(first[1:], nil))
	wantFault(t, err, 11, Deleted)
	_, err = check(Expect{}, j.files[0], nil)
	wantFault(t, err, 11, CutOff)
	lines := bytes.SplitAfter(j.files[0], []byte("\n"))
	_, err = check(Expect{}, bytes.Join(lines[:8], nil), j.files[1])
	wantFault(t, err, 9, Deleted)
}

// TestBrokenLog: a log that the agent found damaged goes on, and says so.
func TestBrokenLog(t *testing.T) {
	by := newDevice(t)
	j := sample(t, by)
	after := by.opened
	after.After = "record 4 was changed"
	j.files = append(j.files, j.chain.AppendBreak(nil, start, after))
	j.head()
	report, err := check(Expect{Heads: j.heads}, j.files...)
	must(t, err)
	if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, after.After) {
		t.Errorf("notes %q", notes)
	}
}

// TestForgeries are what only the heads reveal.
func TestForgeries(t *testing.T) {
	by, other := newDevice(t), newDevice(t)
	whole := sample(t, by)
	lines := bytes.SplitAfter(whole.files[0], []byte("\n"))
	lines = lines[:len(lines)-1]

	t.Run("cut behind a head", func(t *testing.T) {
		cut := bytes.Join(lines[:8], nil)
		_, err := check(Expect{}, cut)
		must(t, err) // as it was when record 8 was the last
		_, err = check(Expect{Heads: whole.heads}, cut)
		wantFault(t, err, 9, CutOff)
	})
	t.Run("linked anew", func(t *testing.T) {
		for _, rest := range []int{8, len(lines)} { // the end, or more behind it
			forged := sampleWithout(t, by, lines[:rest])
			_, err := check(Expect{}, forged)
			want := uint64(5) // the first that no good head vouches for
			if rest == 8 {
				want = 8 // which may as well be the bad one itself
			}
			wantFault(t, err, want, Changed)
		}
	})
	t.Run("another device", func(t *testing.T) {
		forged := sample(t, other).files[0]
		_, err := check(Expect{Device: by.opened.Device}, forged)
		wantFault(t, err, 1, Foreign)
		_, err = check(Expect{Sandbox: "sb_2"}, whole.files[0])
		wantFault(t, err, 1, Foreign)
	})
	t.Run("another device's file behind", func(t *testing.T) {
		j := sample(t, by)
		j.by = other
		j.begin()
		j.head()
		_, err := check(Expect{}, j.files...)
		wantFault(t, err, 11, Foreign)
	})
	t.Run("another log of the same device", func(t *testing.T) {
		heads := append([]protocol.AuditHead{}, whole.heads...)
		heads[2].Hash = strings.Repeat("0", 64)
		_, err := check(Expect{Heads: heads}, whole.files[0])
		wantFault(t, err, 10, Changed)
		_, err = check(Expect{Heads: sample(t, by).heads}, whole.files[0])
		wantFault(t, err, 8, Changed) // the signature in record 4 differs, and so all that is behind it
	})
	t.Run("key and thumbprint apart", func(t *testing.T) {
		j := &journal{t: t, by: other}
		j.by.opened.Device = by.opened.Device
		j.begin()
		j.head()
		_, err := check(Expect{Device: by.opened.Device}, j.files[0])
		wantFault(t, err, 1, Changed)
	})
	t.Run("format of the future", func(t *testing.T) {
		j := &journal{t: t, by: by}
		j.by.opened.Format = 2
		j.begin()
		j.head()
		if _, err := check(Expect{}, j.files[0]); err == nil || !strings.Contains(err.Error(), "format 2") {
			t.Error(err)
		}
	})
}

// sampleWithout changes record 6 of lines and links all that follow anew, with
// the signatures of the true log.
func sampleWithout(t *testing.T, by device, lines [][]byte) []byte {
	t.Helper()
	var out []byte
	var c Chain
	for i, text := range lines {
		r, err := decode(text)
		must(t, err)
		if i == 5 {
			r.Approval.Decision = "deny"
		}
		if r.Head == nil {
			out = c.Append(out, *r)
			continue
		}
		out, _, _, err = c.AppendHead(out, sandbox, time.UnixMilli(r.At), func([]byte) ([]byte, error) { return r.Head.Signature, nil })
		must(t, err)
	}
	return out
}

// TestEveryPrefix: whatever is cut off is found, but for a cut behind a head,
// which the control plane's head reveals.
func TestEveryPrefix(t *testing.T) {
	by := newDevice(t)
	j := sample(t, by)
	data := j.files[0]
	for n := range len(data) {
		want := uint64(bytes.Count(data[:n], []byte("\n"))) + 1
		_, err := check(Expect{Heads: j.heads}, data[:n])
		wantFault(t, err, want, CutOff)
		_, err = check(Expect{}, data[:n])
		if lastHead := want-1 == 4 || want-1 == 8; !lastHead || n > 0 && data[n-1] != '\n' {
			wantFault(t, err, want, CutOff)
		} else {
			must(t, err)
		}
	}
}

// TestEveryByte changes each byte.
func TestEveryByte(t *testing.T) {
	by := newDevice(t)
	data := sample(t, by).files[0]
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= [...]byte{1, 2, 0x20, 0x80}[i%4]
		want := uint64(bytes.Count(data[:i], []byte("\n"))) + 1
		nature := Changed
		if i == len(data)-1 {
			nature = CutOff // its end is no end any more
		}
		_, err := check(Expect{}, bad)
		wantFault(t, err, want, nature)
	}
}

// TestTamper is the model: a random log, and one thing that is done to it.
func TestTamper(t *testing.T) {
	by := newDevice(t)
	rapid.Check(t, func(rt *rapid.T) {
		j := &journal{t: t, by: by}
		j.begin()
		for i := range rapid.IntRange(0, 30).Draw(rt, "records") {
			switch rapid.IntRange(0, 5).Draw(rt, "kind") {
			case 0, 1, 2:
				j.command(i)
			case 3, 4:
				j.lease(i)
			case 5:
				j.head()
			}
		}
		j.head()
		data := j.files[0]
		if _, err := check(Expect{First: 1, Heads: j.heads}, data); err != nil {
			rt.Fatal(err)
		}
		lines := bytes.SplitAfter(data, []byte("\n"))
		lines = lines[:len(lines)-1]
		at := rapid.IntRange(0, len(lines)-1).Draw(rt, "line")
		heads := Expect{Heads: j.heads}
		var bad []byte
		sequence, nature := uint64(at+1), Deleted
		switch what := rapid.SampledFrom([]string{"delete", "change", "swap", "cut", "copy"}).Draw(rt, "what"); what {
		case "delete":
			bad = bytes.Join(append(append([][]byte{}, lines[:at]...), lines[at+1:]...), nil)
			if at == len(lines)-1 {
				nature = CutOff
			}
		case "change":
			nature = Changed
			changed := bytes.Clone(lines[at])
			changed[rapid.IntRange(0, len(changed)-2).Draw(rt, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
			bad = bytes.Join(append(append([][]byte{}, lines[:at]...), append([][]byte{changed}, lines[at+1:]...)...), nil)
		case "swap":
			other := rapid.IntRange(0, len(lines)-1).Draw(rt, "other")
			if other == at {
				return
			}
			swapped := append([][]byte{}, lines...)
			swapped[at], swapped[other] = swapped[other], swapped[at]
			bad, sequence, nature = bytes.Join(swapped, nil), uint64(min(at, other)+1), Reordered
		case "cut":
			n := rapid.IntRange(0, len(data)-1).Draw(rt, "bytes")
			bad, sequence, nature = data[:n], uint64(bytes.Count(data[:n], []byte("\n")))+1, CutOff
		case "copy":
			bad = bytes.Join(append(append([][]byte{}, lines[:at+1]...), lines[at:]...), nil)
			nature = Reordered
		}
		_, err := check(heads, bad)
		var f *Fault
		if !errors.As(err, &f) || f.Sequence != sequence || f.Nature != nature {
			rt.Fatalf("got %v; want record %d %s", err, sequence, nature)
		}
	})
}

// TestRenamedSandbox: what is known is the heads alone, and they say whose log it
// is: the record that names another sandbox is the one that was changed.
func TestRenamedSandbox(t *testing.T) {
	j := sample(t, newDevice(t))
	name := []byte(`"sandbox":"`)
	at := bytes.Index(j.files[0], name) + len(name)
	bad := bytes.Clone(j.files[0])
	bad[at] ^= 1
	_, err := check(Expect{Heads: j.heads}, bad)
	var f *Fault
	if !errors.As(err, &f) || f.Sequence != 1 || f.Nature != Changed {
		t.Errorf("%v", err)
	}
}

// TestResume: a writer goes on behind the last whole record, wherever a crash
// has cut the file.
func TestResume(t *testing.T) {
	by := newDevice(t)
	data := sample(t, by).files[0]
	for n := range len(data) + 1 {
		ends := bytes.Count(data[:n], []byte("\n"))
		size := bytes.LastIndexByte(data[:n], '\n') + 1
		zeroed := append(bytes.Clone(data[:n]), make([]byte, 9)...)
		for _, cut := range [][]byte{data[:n], zeroed} {
			r := Resume(cut, Expect{First: 1})
			if r.Fault != nil || r.Chain.Last() != uint64(ends) || r.Size != int64(size) || r.Dropped != int64(len(cut)-size) {
				t.Fatalf("prefix of %d: %+v", n, r)
			}
			if want := [...]int{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0}[ends]; r.Unsigned != want {
				t.Fatalf("%d records: %d without a head, want %d", ends, r.Unsigned, want)
			}
			if ends == 0 {
				continue
			}
			on := &journal{t: t, by: by, chain: r.Chain, files: [][]byte{bytes.Clone(cut[:r.Size])}}
			on.add(Record{Resumed: &Resumed{Dropped: r.Dropped}})
			on.head()
			_, err := check(Expect{}, on.files[0])
			must(t, err)
		}
	}
}

// TestResumeDamaged: a file that isn't as it was written isn't gone on with,
// and the next one has numbers of its own.
func TestResumeDamaged(t *testing.T) {
	by := newDevice(t)
	data := sample(t, by).files[0]
	lines := bytes.SplitAfter(data, []byte("\n"))
	for what, bad := range map[string][]byte{
		"changed": bytes.Replace(data, []byte(`"allow"`), []byte(`"never"`), 1),
		"deleted": bytes.Join(append(append([][]byte{}, lines[:2]...), lines[3:]...), nil),
		"garbage": []byte("x\n"),
	} {
		r := Resume(bad, Expect{First: 1})
		if r.Fault == nil || r.Chain.Last() < uint64(bytes.Count(bad, []byte("\n"))) || r.Chain.Last() == 0 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if r := Resume(data, Expect{First: 1, Device: newDevice(t).opened.Device}); r.Fault == nil || r.Fault.Nature != Foreign {
		t.Errorf("%+v", r.Fault)
	}
}

// TestTidy: what is too long or not UTF-8 is written so that it can be read.
func TestTidy(t *testing.T) {
	by := newDevice(t)
	j := &journal{t: t, by: by}
	j.begin()
	j.add(Record{Command: &Command{ID: "cmd_1", Op: strings.Repeat("\xff", 70_000), Status: "ok", Error: "a\x00b\u2028 \\ufffd"}})
	j.add(Record{Lease: &Lease{Session: "ses_1", PTY: "pty_1", State: protocol.LeaseFree, Cause: strings.Repeat("é", 200)}})
	j.add(Record{Approval: &Approval{ID: "a", About: strings.Repeat("\x01", 70_000), Decision: "deny"}})
	j.add(Record{Sync: &Sync{Session: "ses_1", Pairing: "pr_1", Hostname: strings.Repeat("\x01", 70_000)}})
	j.head()
	_, err := check(Expect{}, j.files[0])
	must(t, err)
}

func TestFailedSignature(t *testing.T) {
	by := newDevice(t)
	j := &journal{t: t, by: by}
	j.begin()
	data, _, _, err := j.chain.AppendHead(*j.file(), sandbox, start, func([]byte) ([]byte, error) { return nil, errors.New("no key") })
	if err == nil || len(data) != len(*j.file()) || j.chain.Last() != 1 {
		t.Fatalf("%v, record %d", err, j.chain.Last())
	}
	j.head()
	_, err = check(Expect{}, j.files[0])
	must(t, err)
}

// TestLongLine: a line without an end takes no more memory than a record.
func TestLongLine(t *testing.T) {
	_, err := check(Expect{}, bytes.Repeat([]byte("x"), 3*MaxLineBytes))
	wantFault(t, err, 1, Changed)
}

func TestReadError(t *testing.T) {
	by := newDevice(t)
	broken := errors.New("no more")
	v := NewVerifier(Expect{})
	err := v.File(&failing{data: sample(t, by).files[0], err: broken})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, again := v.Report(); !errors.Is(again, broken) {
		t.Error(again)
	}
}

type failing struct {
	data []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	n := copy(p, f.data)
	f.data = f.data[n:]
	if n == 0 {
		return 0, f.err
	}
	return n, nil
}

func TestFileNames(t *testing.T) {
	for _, n := range []uint64{1, 813, 1<<64 - 1} {
		if got, ok := FileSequence(FileName(n)); !ok || got != n {
			t.Errorf("%s: %d, %v", FileName(n), got, ok)
		}
	}
	for _, name := range []string{"", "audit-1.jsonl", "audit-0000000000000000.jsonl", "audit-0000000000000001.json", "audit-00000000000000001.jsonl", "audit-+000000000000001.jsonl"} {
		if n, ok := FileSequence(name); ok {
			t.Errorf("%q: %d", name, n)
		}
	}
}

// TestGolden pins the format: a log of an earlier build must stay readable.
func TestGolden(t *testing.T) {
	path := filepath.Join("testdata", FileName(1))
	if os.Getenv("GOLDEN") != "" {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, sample(t, newDevice(t)).files[0], 0o644))
	}
	data, err := os.ReadFile(path)
	must(t, err)
	report, err := check(Expect{Sandbox: sandbox, First: 1}, data)
	must(t, err)
	if report.Last != 10 {
		t.Errorf("%+v", report)
	}
}

func TestKeys(t *testing.T) {
	// RFC 7638 has no example for EC; the thumbprint is of the members in order.
	by := newDevice(t)
	jwk, err := json.Marshal(by.opened.Key)
	must(t, err)
	k, err := ParseKey(jwk)
	must(t, err)
	text := fmt.Sprintf(`{"crv":"P-256","kty":"EC","x":%q,"y":%q}`, k.X, k.Y)
	sum := sha256.Sum256([]byte(text))
	if k.Thumbprint() != base64url.EncodeToString(sum[:]) || len(hex.EncodeToString(sum[:])) != len(noPrev) {
		t.Error(k.Thumbprint())
	}
	for _, change := range []func(*Key){
		func(k *Key) { k.Kty = "RSA" }, func(k *Key) { k.Crv = "P-384" },
		func(k *Key) { k.X = k.X[1:] }, func(k *Key) { k.Y = k.X }, func(k *Key) { k.X += "=" }, func(k *Key) { k.X = k.X[:20] + "\n" + k.X[21:] },
	} {
		bad := k
		change(&bad)
		jwk, err := json.Marshal(bad)
		must(t, err)
		if _, err := ParseKey(jwk); err == nil {
			t.Errorf("%s was taken", jwk)
		}
	}
	if _, err := ParseKey([]byte("[]")); err == nil {
		t.Error("an array was taken")
	}
}

func FuzzVerify(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", FileName(1)))
	must(f, err)
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		v := NewVerifier(Expect{})
		err := v.File(bytes.NewReader(data))
		report, end := v.Report()
		if err == nil && end == nil && report.Head.Sequence != report.Last {
			t.Fatalf("%+v was accepted", report)
		}
		if r := Resume(data, Expect{First: 1}); r.Size+r.Dropped != int64(len(data)) || r.Fault == nil && r.Chain.Last() < report.Last {
			t.Fatalf("resumed at %+v", r)
		}
	})
}

func FuzzDecode(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", FileName(1)))
	must(f, err)
	for _, text := range bytes.SplitAfter(data, []byte("\n")) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decode(text)
		if err == nil && !bytes.Equal(r.encode(), text) {
			t.Fatalf("%q has a second spelling", text)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	j := &journal{t: b, by: newDevice(b)}
	j.begin()
	buf := make([]byte, 0, 1<<10)
	b.ReportAllocs()
	for i := range b.N {
		buf = j.chain.Append(buf[:0], Record{At: int64(i), Command: &Command{ID: "cmd_1", Op: "session.create", Session: "ses_1", Status: "ok"}})
	}
}
