package store

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

const invitation = "an-invitation-of-sandbox-one"

// TestManyInvitations: a batch is taken whole or not at all.
func TestManyInvitations(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		batch := func(dashboards ...string) (list []Invitation) {
			for i, d := range dashboards {
				list = append(list, Invitation{
					Sandbox: protocol.SandboxID(fmt.Sprintf("sb_new_%d", i)), Token: fmt.Sprintf("invitation-of-new-%d", i),
					Expires: c.Now().Add(time.Hour), Dashboard: d,
				})
			}
			return list
		}
		wantKind(t, s.Fleet.AddInvitations(t.Context(), batch("dash_a", "dash_b"), "usr_none"), protocol.KindNotFound)
		wantKind(t, s.Fleet.AddInvitations(t.Context(), batch("dash_a", "dash_1"), "usr_alice"), protocol.KindConflict) // it exists
		must(t, s.Fleet.AddInvitations(t.Context(), batch("dash_a", "dash_b"), "usr_alice"))
		d, m, err := s.Boards.DashboardOf(t.Context(), "usr_alice", "sb_new_1")
		must(t, err)
		if d.ID != "dash_b" || d.Name != "sb_new_1" || m.Role != RoleOwner {
			t.Errorf("dashboard %+v, member %+v", d, m)
		}
		must(t, s.Fleet.UseInvitation(t.Context(), "sb_new_0", "invitation-of-new-0", "thumb", nil, c.Now()))
	})
}

// TestOneUse: of 50 uses of one invitation at a time, by one device or by many,
// one succeeds, and its device has the sandbox.
func TestOneUse(t *testing.T) {
	for _, devices := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d devices", devices), func(t *testing.T) {
			eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
				must(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_1", invitation, epoch.Add(time.Minute), true, ""}}, ""))
				winner := ""
				for i, err := range parallel(50, func(i int) error {
					return s.Fleet.UseInvitation(t.Context(), "sb_1", invitation, fmt.Sprint("key", i%devices), []byte(`{}`), c.Now())
				}) {
					switch {
					case err == nil && winner == "":
						winner = fmt.Sprint("key", i%devices)
					case err == nil:
						t.Error("a second use succeeded")
					default:
						wantKind(t, err, protocol.KindUnauthenticated)
					}
				}
				b, err := s.Fleet.Sandbox(t.Context(), "sb_1")
				if err != nil || winner == "" || b.DeviceKey != winner || !b.EnrolledAt.Equal(epoch) {
					t.Errorf("%+v, %v; want the key %q", b, err, winner)
				}
			})
		})
	}
}

func TestInvitation(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		use := func(sandbox protocol.SandboxID, token, key string) error {
			return s.Fleet.UseInvitation(t.Context(), sandbox, token, key, []byte(`{"a":1}`), c.Now())
		}
		invite := func(token string, replace bool) {
			t.Helper()
			must(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_1", token, c.Now().Add(time.Minute), replace, "dash_1"}}, ""))
		}
		wantKind(t, use("sb_1", invitation, "key1"), protocol.KindUnauthenticated) // unknown
		invite("an-invitation-before-it", false)
		invite(invitation, false)
		wantKind(t, use("sb_1", "an-invitation-before-it", "key1"), protocol.KindUnauthenticated)
		wantKind(t, use("sb_2", invitation, "key1"), protocol.KindUnauthenticated)
		wantKind(t, use("sb_1", invitation, ""), protocol.KindInvalid)
		must(t, use("sb_1", invitation, "key1"))
		wantKind(t, use("sb_1", invitation, "key1"), protocol.KindUnauthenticated)

		invite("an-invitation-of-the-same", false) // another key needs replace
		wantKind(t, use("sb_1", "an-invitation-of-the-same", "key2"), protocol.KindConflict)
		must(t, use("sb_1", "an-invitation-of-the-same", "key1")) // the same key doesn't
		invite("an-invitation-to-replace", true)
		must(t, use("sb_1", "an-invitation-to-replace", "key2"))

		invite("an-invitation-too-late", true)
		c.Advance(time.Minute)
		wantKind(t, use("sb_1", "an-invitation-too-late", "key3"), protocol.KindUnauthenticated)
		b, err := s.Fleet.Sandbox(t.Context(), "sb_1")
		if err != nil || b.DeviceKey != "key2" || string(b.DeviceJWK) != `{"a":1}` || b.Dashboard != "dash_1" {
			t.Errorf("%+v, %v", b, err)
		}

		later := c.Now().Add(time.Minute)
		wantKind(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_1", "short", later, false, ""}}, ""), protocol.KindInvalid)
		wantKind(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"a b", invitation, later, false, ""}}, ""), protocol.KindInvalid)
		wantKind(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_9", invitation, later, false, ""}}, ""), protocol.KindConflict) // a token twice
		wantKind(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_9", "a-good-invitation", later, false, "dash_9"}}, ""), protocol.KindNotFound)
		wantKind(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_9", "a-good-invitation", later, false, "dash_1"}}, ""), protocol.KindConflict)
		wantKind(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_2", "a-good-invitation", later, false, "dash_1"}}, ""), protocol.KindConflict)
	})
}

// TestInvitationModel invites, enrols, revokes and lets time pass at random.
func TestInvitationModel(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			type open struct {
				token   string
				expires time.Time
				replace bool
			}
			sandbox, key := protocol.SandboxID(fmt.Sprint("sb_model", round)), ""
			var last *open
			var tokens []string
			rt.Repeat(map[string]func(*rapid.T){
				"invite": func(rt *rapid.T) {
					o := open{
						fmt.Sprintf("invitation-%08d-%08d", round, len(tokens)),
						c.Now().Add(time.Duration(rapid.IntRange(1, 3).Draw(rt, "minutes")) * time.Minute),
						rapid.Bool().Draw(rt, "replace"),
					}
					if err := s.Fleet.AddInvitations(t.Context(), []Invitation{{sandbox, o.token, o.expires, o.replace, ""}}, ""); err != nil {
						rt.Fatal(err)
					}
					last, tokens = &o, append(tokens, o.token)
				},
				"use": func(rt *rapid.T) {
					if len(tokens) == 0 {
						rt.Skip("no invitation yet")
					}
					token := rapid.SampledFrom(tokens).Draw(rt, "token")
					device := rapid.SampledFrom([]string{"k1", "k2"}).Draw(rt, "device")
					err := s.Fleet.UseInvitation(t.Context(), sandbox, token, device, nil, c.Now())
					switch {
					case last == nil || last.token != token || !c.Now().Before(last.expires):
						if err == nil || protocol.KindOf(err) != protocol.KindUnauthenticated {
							rt.Fatalf("an invitation that isn't valid: %v", err)
						}
					case key != "" && key != device && !last.replace:
						if err == nil || protocol.KindOf(err) != protocol.KindConflict {
							rt.Fatalf("another key: %v", err)
						}
					case err != nil:
						rt.Fatal(err)
					default:
						key, last = device, nil
					}
				},
				"revoke": func(rt *rapid.T) {
					if err := s.Fleet.RevokeSandbox(t.Context(), sandbox, c.Now()); (err == nil) != (len(tokens) > 0) {
						rt.Fatal(err)
					}
					key, last = "", nil
				},
				"wait": func(*rapid.T) { c.Advance(time.Minute) },
				"": func(rt *rapid.T) {
					if b, err := s.Fleet.Sandbox(t.Context(), sandbox); len(tokens) > 0 && (err != nil || b.DeviceKey != key) {
						rt.Fatalf("%+v, %v; want the key %q", b, err, key)
					}
				},
			})
		})
	})
}

func TestEnrolSandbox(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		enrol := func(key string, replace bool) error {
			return s.Fleet.EnrolSandbox(t.Context(), "sb_new", key, []byte(`{}`), replace, c.Now())
		}
		must(t, enrol("key1", false))
		must(t, enrol("key1", false))
		wantKind(t, enrol("key2", false), protocol.KindConflict)
		cert := Certificate{ID: "crt_1", Sandbox: "sb_new", DeviceKey: "key1", ExpiresAt: c.Now().Add(time.Hour)}
		must(t, s.Fleet.AddCertificate(t.Context(), cert))
		must(t, enrol("key2", true))
		if list, err := s.Grants.Revocations(t.Context(), c.Now()); err != nil || len(list.Certificates) != 0 {
			t.Errorf("whoever uses the old key is disturbed: %+v, %v", list, err)
		}
		if got, err := s.Fleet.Certificate(t.Context(), "crt_1"); err != nil || got != cert {
			t.Errorf("%+v, %v", got, err)
		}
		page, err := s.Fleet.Sandboxes(t.Context(), "sb_1", 2)
		if err != nil || len(page) != 2 || page[0].ID != "sb_2" || page[1].ID != "sb_new" {
			t.Errorf("%+v, %v", page, err)
		}
		_, err = s.Fleet.Sandbox(t.Context(), "sb_none")
		wantKind(t, err, protocol.KindNotFound)
	})
}

// TestRevokeSandbox: its certificates are void until they expire by themselves.
func TestRevokeSandbox(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		must(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "key1", nil, false, c.Now()))
		for i := range 3 {
			must(t, s.Fleet.AddCertificate(t.Context(), Certificate{
				ID: fmt.Sprint("crt_", i), Sandbox: "sb_1", DeviceKey: "key1", ExpiresAt: c.Now().Add(time.Duration(i) * time.Hour),
			}))
		}
		wantKind(t, s.Fleet.AddCertificate(t.Context(), Certificate{ID: "crt_1", Sandbox: "sb_1", DeviceKey: "key1"}), protocol.KindConflict)
		wantKind(t, s.Fleet.AddCertificate(t.Context(), Certificate{ID: "crt_9", Sandbox: "sb_1", DeviceKey: "key2"}), protocol.KindForbidden)
		wantKind(t, s.Fleet.AddCertificate(t.Context(), Certificate{ID: "crt_9", Sandbox: "sb_2"}), protocol.KindForbidden)
		must(t, s.Fleet.AddInvitations(t.Context(), []Invitation{{"sb_1", invitation, c.Now().Add(time.Hour), true, ""}}, ""))
		c.Advance(30 * time.Minute)
		must(t, s.Fleet.RevokeSandbox(t.Context(), "sb_1", c.Now()))
		wantKind(t, s.Fleet.RevokeSandbox(t.Context(), "sb_none", c.Now()), protocol.KindNotFound)
		wantKind(t, s.Fleet.UseInvitation(t.Context(), "sb_1", invitation, "key2", nil, c.Now()), protocol.KindUnauthenticated)
		b, err := s.Fleet.Sandbox(t.Context(), "sb_1")
		if err != nil || b.DeviceKey != "" || !b.RevokedAt.Equal(c.Now()) {
			t.Errorf("%+v, %v", b, err)
		}
		for _, want := range [][]string{{"crt_1", "crt_2"}, {"crt_2"}, nil} {
			list, err := s.Grants.Revocations(t.Context(), c.Now())
			var got []string
			for _, v := range list.Certificates {
				got = append(got, v.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
			c.Advance(time.Hour)
		}
		must(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "key2", nil, false, c.Now()))
		if b, err := s.Fleet.Sandbox(t.Context(), "sb_1"); err != nil || b.DeviceKey != "key2" || !b.RevokedAt.IsZero() {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

func TestTooManyCertificates(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		must(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "key1", nil, false, c.Now()))
		add := func(i int) error {
			return s.Fleet.AddCertificate(t.Context(), Certificate{
				ID: fmt.Sprint("crt_", i), Sandbox: "sb_1", DeviceKey: "key1", ExpiresAt: c.Now().Add(time.Hour),
			})
		}
		for i := range maxCertificates {
			must(t, add(i))
		}
		wantKind(t, add(maxCertificates), protocol.KindTooMany)
		c.Advance(2 * time.Hour)
		must(t, add(maxCertificates))
		_, err := s.Fleet.Certificate(t.Context(), "crt_0")
		wantKind(t, err, protocol.KindNotFound)
	})
}

func TestAuditHead(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		put := func(sequence uint64, hash string) error {
			return s.Fleet.PutAuditHead(t.Context(), protocol.AuditHead{
				SandboxID: "sb_1", Sequence: sequence, Hash: hash, At: c.Now().UnixMilli(),
			}, []byte("sig"+hash))
		}
		wantKind(t, put(1, "aa"), protocol.KindForbidden)
		must(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "key1", nil, false, c.Now()))
		_, err := s.Fleet.AuditHead(t.Context(), "sb_1")
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, put(math.MaxUint64, "aa"), protocol.KindInvalid)
		must(t, put(5, "aa"))
		must(t, put(5, "aa"))
		wantKind(t, put(5, "bb"), protocol.KindConflict)
		wantKind(t, put(4, "aa"), protocol.KindConflict)
		must(t, put(9, "cc"))
		head, err := s.Fleet.AuditHead(t.Context(), "sb_1")
		if err != nil || head.Sequence != 9 || head.Hash != "cc" || string(head.Signature) != "sigcc" || head.SandboxID != "sb_1" {
			t.Errorf("%+v, %v", head, err)
		}
		// Another device's log begins anew.
		must(t, s.Fleet.EnrolSandbox(t.Context(), "sb_1", "key2", nil, true, c.Now()))
		must(t, put(1, "dd"))
		if b, err := s.Fleet.Sandbox(t.Context(), "sb_1"); err != nil || b.Head.Sequence != 1 {
			t.Errorf("%+v, %v", b, err)
		}
		// Of two logs that fork, one is believed.
		outcomes := make(map[bool]int)
		for _, err := range parallel(10, func(i int) error { return put(2, fmt.Sprint("h", i)) }) {
			outcomes[err == nil]++
		}
		if !maps.Equal(outcomes, map[bool]int{true: 1, false: 9}) {
			t.Errorf("%v", outcomes)
		}
	})
}
