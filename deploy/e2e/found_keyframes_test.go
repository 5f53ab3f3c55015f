package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

var (
	hostileSockets = flag.Int("hostile.sockets", 15, "how many terminals of a hostile sandbox are watched, which it makes up")
	hostileOutput  = flag.Int("hostile.output", 1<<20, "bytes of output that each of them has before")
	hostileRounds  = flag.Int("hostile.rounds", 3, "how many of the largest keyframes it sends to each")
)

// A hostile is a sandbox that opens every terminal that it is asked for, and
// sends keyframes of the largest size that nobody has asked for, beside one that
// somebody has.
type hostile struct {
	t       *testing.T
	id      protocol.SandboxID
	session *tunnel.Session
	serving sync.WaitGroup
	floods  atomic.Int32 // streams that have had all they get
}

// newHostile registers a sandbox at the stack's first relay.
func newHostile(ctx context.Context, t *testing.T, s *Stack, signer *jws.Signer) *hostile {
	t.Helper()
	h := &hostile{t: t, id: "sb_hostile"}
	device, err := jws.GenerateDeviceKey()
	must(t, err)
	certificate, err := signer.SignCertificate(jws.Certificate{
		Subject: h.id, JWK: device.PublicJWK(), ID: "crt_hostile", IssuedAt: time.Now().Unix(), ExpiresAt: time.Now().Add(time.Hour).Unix(),
	})
	must(t, err)
	files, err := filepath.Glob(filepath.Join(s.Dir, "ca.pem"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("the stack's authority: %v", files)
	}
	ca, err := os.ReadFile(files[0])
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	h.session, err = tunnel.Dial(ctx, tunnel.DialConfig{
		Addr: s.Ready.Relays[0].Tunnel, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		Hello: func(c protocol.Challenge, exporter []byte) (protocol.Hello, error) {
			signature, err := device.Sign(protocol.HelloTranscript(c.RelayID, c.Nonce, exporter))
			return protocol.Hello{
				MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion, SandboxID: h.id, Certificate: certificate,
				Generation: 1, InstanceID: "hostile", Revision: "hostile", Isolation: "none", Signature: signature,
			}, err
		},
	})
	must(t, err)
	must(t, h.session.SendRole(protocol.Role{Primary: true, Generation: 2}))
	h.serving.Go(func() { // the cleanup waits for it
		for {
			in, err := h.session.Accept(context.Background())
			if err != nil {
				return
			}
			h.serving.Go(func() { h.serve(in) })
		}
	})
	t.Cleanup(func() {
		h.session.Close()
		h.serving.Wait()
	})
	return h
}

// serve is one stream.
func (h *hostile) serve(in *tunnel.Incoming) {
	if in.Open.Kind != protocol.StreamTerminal {
		in.Refuse(protocol.Errorf(protocol.KindUnsupported, "no"))
		return
	}
	const head = 100_000
	result, err := json.Marshal(protocol.TerminalOpened{
		Epoch: 7, Offset: head, Head: head, Cols: 80, Rows: 24, Lease: protocol.Lease{Revision: 1, State: protocol.LeaseFree},
	})
	if err != nil {
		h.t.Error(err)
	}
	stream, err := in.Accept(protocol.Opened{Result: result})
	if err != nil {
		return
	}
	defer stream.Close()
	piece := make([]byte, protocol.MaxKeyframePiece)
	at := uint64(head)
	for left := *hostileOutput; left > 0; left -= len(piece) {
		if protocol.Write(stream, protocol.Data{Offset: at, Bytes: piece[:min(left, len(piece))]}) != nil {
			return
		}
		at += uint64(min(left, len(piece)))
	}
	for i := range *hostileRounds {
		for left := protocol.MaxKeyframeBytes; left > 0; {
			n := min(left, len(piece))
			left -= n
			if protocol.Write(stream, protocol.Keyframe{Offset: at, History: i%2 == 0, Left: left, Bytes: piece[:n]}) != nil {
				return
			}
		}
	}
	if protocol.Write(stream, protocol.Keyframe{Offset: at, Left: protocol.MaxKeyframeBytes - 1, Bytes: piece[:1]}) == nil {
		for left := protocol.MaxKeyframeBytes - 1; left > 1<<20; { // and one that never ends
			n := min(left, len(piece))
			left -= n
			if protocol.Write(stream, protocol.Keyframe{Offset: at, Left: left, Bytes: piece[:n]}) != nil {
				return
			}
		}
	}
	h.floods.Add(1)
	frames := protocol.NewFrameReader(stream)
	for {
		if _, err := frames.Next(); err != nil {
			return
		}
	}
}

var peak = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

// peakMemory returns the most that a process had of the machine's memory so far.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	must(t, err)
	m := peak.FindSubmatch(status)
	if m == nil {
		t.Fatal("no VmHWM")
	}
	n, err := strconv.Atoi(string(m[1]))
	must(t, err)
	return n << 10
}

// TestFound12HostileKeyframes: what a sandbox sends unasked, on as many
// terminals as it makes up, doesn't take the relay's memory; and where somebody
// asks, there is a bound for all of them.
func TestFound12HostileKeyframes(t *testing.T) {
	ctx := within(t)
	s := own(t)
	signer, err := s.Signer()
	must(t, err)
	h := newHostile(ctx, t, s, signer)
	before := peakMemory(t, s.Ready.Relays[0].PID)
	now := time.Now()
	grant, err := signer.SignGrant(jws.Grant{
		Subject: "usr_mallory", Name: "Mallory", Sandbox: h.id, Session: "ses_hostile", PTYs: []string{jws.AllPTYs},
		Caps: []protocol.Capability{protocol.CapView}, IssuedAt: now.Unix(), ExpiresAt: now.Add(5 * time.Minute).Unix(), ID: protocol.NewGrantID(),
	})
	must(t, err)
	user := User{Base: s.Ready.Relays[0].URL}
	for i := range *hostileSockets {
		pty := protocol.PTYID(fmt.Sprint("pty_madeup", i))
		ticket, err := user.Ticket(ctx, grant, "ses_hostile", pty)
		must(t, err)
		conn, err := DialRaw(ctx, ticket, user.Base) // and takes nothing
		must(t, err)
		t.Cleanup(func() { conn.CloseNow() })
	}
	await(t, "all that it sends", func() bool { return int(h.floods.Load()) == *hostileSockets })
	most := peakMemory(t, s.Ready.Relays[0].PID)
	t.Logf("%d terminals, %d keyframes of %d MiB to each: the relay had %d MiB at most, %d MiB before",
		*hostileSockets, *hostileRounds, protocol.MaxKeyframeBytes>>20, most>>20, before>>20)
	if limit := protocol.RelayRingBytes + 64<<20; most > limit {
		t.Errorf("the relay had %d MiB, more than %d", most>>20, limit>>20)
	}
	// Everybody else has their terminals.
	pty := newPTY(t, s, "stty -echo; printf up; exec cat")
	alice := attach(t, s, "alice", pty)
	must(t, alice.Expect(ctx, "up"))
	must(t, alice.Type(ctx, "and on\n"))
	must(t, alice.Expect(ctx, "and on"))
}
