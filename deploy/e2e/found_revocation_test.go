package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// published returns what the control plane says is void, unverified.
func published(t *testing.T, s *Stack) (all jws.Revocations, bytes int) {
	t.Helper()
	status, body, err := Call(within(t), http.MethodGet, s.Ready.Relays[0].URL+"/.well-known/revocations", "", nil)
	must(t, err)
	if status != http.StatusOK {
		t.Fatalf("the revocation list: %d %s", status, body)
	}
	for part := range strings.FieldsSeq(string(body)) {
		list := payload[jws.Revocations](t, part)
		all.Number = max(all.Number, list.Number)
		all.Grants = append(all.Grants, list.Grants...)
		all.Subjects = append(all.Subjects, list.Subjects...)
		all.Certificates = append(all.Certificates, list.Certificates...)
	}
	return all, len(body)
}

// boards makes a dashboard of user's and removes it again, n times.
func boards(ctx context.Context, t *testing.T, user User, n int) {
	t.Helper()
	for range n {
		var made struct {
			Dashboard struct {
				ID string `json:"id"`
			} `json:"dashboard"`
		}
		must(t, call(ctx, http.StatusCreated, &made, http.MethodPost, user.Base+"/dashboards", user.Token, map[string]any{"name": "short-lived"}))
		if status, body, err := Call(ctx, http.MethodDelete, user.Base+"/dashboards/"+made.Dashboard.ID, user.Token, nil); err != nil || status != http.StatusNoContent {
			t.Fatalf("removing a dashboard: %d %s %v", status, body, err)
		}
	}
}

// dashboardOf returns the dashboard of the stack's first session.
func dashboardOf(ctx context.Context, t *testing.T, s *Stack) string {
	t.Helper()
	grant, err := s.Ready.User("alice").Grant(ctx, s.Ready.SessionID)
	must(t, err)
	return payload[jws.Grant](t, grant).Dashboard
}

// restartRelay kills the first relay and waits for the next one, which knows
// nothing but what it is told.
func restartRelay(t *testing.T, s *Stack) {
	t.Helper()
	before := s.Ready.Relays[0].PID
	must(t, syscall.Kill(before, syscall.SIGKILL))
	await(t, "another relay", func() bool {
		must(t, s.Reload(patience))
		return s.Ready.Relays[0].PID != before
	})
	await(t, "its list of what is void", func() bool {
		status, _, err := Call(within(t), http.MethodGet, s.Ready.Relays[0].AdminURL+"/readyz", "", nil)
		return err == nil && status == http.StatusOK
	})
}

// TestFound02RevocationsStay: who was removed stays out until his grant ends by
// itself, whatever others revoke meanwhile, and where a relay is new as well.
// What voids nothing puts nothing on the list.
func TestFound02RevocationsStay(t *testing.T) {
	s := own(t)
	ctx := within(t)
	alice, bob, carol := s.Ready.User("alice"), s.Ready.User("bob"), s.Ready.User("carol")
	dashboard := dashboardOf(ctx, t, s)
	grant, err := bob.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket, err := bob.Ticket(ctx, grant, s.Ready.SessionID, s.Ready.PTYID)
	must(t, err)
	watching, err := Dial(ctx, ticket, bob.Base)
	must(t, err)
	t.Cleanup(watching.Close)
	_, err = watching.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	boards(ctx, t, carol, 3)
	if list, _ := published(t, s); list.Number != 0 || len(list.Subjects) != 0 {
		t.Errorf("dashboards without a grant are on the list: %+v", list)
	}

	second := payload[jws.Grant](t, grant).IssuedAt
	await(t, "another second than the grant's", func() bool { // an entry for the person covers it then
		g, err := alice.Grant(ctx, s.Ready.SessionID, protocol.CapView)
		must(t, err)
		return payload[jws.Grant](t, g).IssuedAt > second
	})
	if status, body, err := Call(ctx, http.MethodDelete, alice.Base+"/dashboards/"+dashboard+"/members/"+string(bob.ID), alice.Token, nil); err != nil || status != http.StatusNoContent {
		t.Fatalf("removing bob: %d %s %v", status, body, err)
	}
	if code, err := watching.ExpectClose(ctx); err != nil || code != websocket.StatusCode(4401) {
		t.Errorf("the socket of who was removed: %d, %v", code, err)
	}
	before, _ := published(t, s)
	boards(ctx, t, carol, 140)
	after, _ := published(t, s)
	if after.Number != before.Number || len(after.Subjects) != len(before.Subjects) || !after.Revokes(&jws.Grant{
		Subject: bob.ID, Dashboard: dashboard, IssuedAt: second, ID: payload[jws.Grant](t, grant).ID,
	}) {
		t.Errorf("140 dashboards later the list has number %d and %d subjects, it had %d and %d", after.Number, len(after.Subjects), before.Number, len(before.Subjects))
	}
	out := func(when string) {
		t.Helper()
		status, body, err := Call(ctx, http.MethodPost, bob.Base+"/pty-session", grant, map[string]any{"session_id": s.Ready.SessionID, "pty_id": s.Ready.PTYID})
		if err != nil || status != http.StatusUnauthorized {
			t.Errorf("%s: a ticket with the void grant: %d %s %v", when, status, body, err)
		}
		status, body, err = Call(ctx, http.MethodGet, bob.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, nil)
		if err != nil || status != http.StatusUnauthorized {
			t.Errorf("%s: the void grant reads: %d %s %v", when, status, body, err)
		}
	}
	out("140 dashboards later")
	restartRelay(t, s)
	out("at a new relay")
	await(t, "the sandbox", func() bool { _, err := s.NewPTY(ctx, alice, "cat"); return err == nil })
	out("with the sandbox there")
}

// TestFound02LongList: who is removed with many others at once is out as well,
// where the list of all of them is too long for one object.
func TestFound02LongList(t *testing.T) {
	const crowd = 420
	s := own(t, "--people", strconv.Itoa(crowd), "--grants-per-person", "64")
	ctx := within(t)
	alice := s.Ready.User("alice")
	dashboard := dashboardOf(ctx, t, s)
	grants := make([]string, crowd)
	each(t, crowd, func(i int) (err error) {
		grants[i], err = s.Ready.User(fmt.Sprint("p", i+1)).Grant(ctx, s.Ready.SessionID)
		return err
	})
	last := time.Now().Unix()
	await(t, "another second", func() bool { return time.Now().Unix() > last }) // a grant of the same is named alone, in fewer bytes
	members := alice.Base + "/dashboards/" + dashboard + "/members/"
	each(t, crowd, func(i int) error {
		status, body, err := Call(ctx, http.MethodDelete, members+string(s.Ready.User(fmt.Sprint("p", i+1)).ID), alice.Token, nil)
		if err == nil && status != http.StatusNoContent {
			err = fmt.Errorf("removing p%d: %d %s", i+1, status, body)
		}
		return err
	})
	list, size := published(t, s)
	t.Logf("%d people and %d single grants in %d bytes", len(list.Subjects), len(list.Grants), size)
	if size <= protocol.MaxTokenBytes {
		t.Errorf("the list has %d bytes: that fits one object", size)
	}
	restartRelay(t, s)
	each(t, crowd, func(i int) error {
		status, body, err := Call(ctx, http.MethodPost, alice.Base+"/pty-session", grants[i], map[string]any{"session_id": s.Ready.SessionID, "pty_id": s.Ready.PTYID})
		if err == nil && status != http.StatusUnauthorized {
			err = fmt.Errorf("p%d gets a ticket: %d %s", i+1, status, body)
		}
		return err
	})
}

// each runs do for 0 to n-1, some at a time.
func each(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	errs, slots := make([]error, n), make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	wg.Wait()
	must(t, errors.Join(errs...))
}

// TestFound10GrantsPerPerson: one person has 64 live grants, and is then told to
// wait; nothing is voided for the next one, and others get theirs.
func TestFound10GrantsPerPerson(t *testing.T) {
	s := own(t, "--people", "1", "--grants-per-person", "64")
	ctx := within(t)
	p1 := s.Ready.User("p1")
	var grants []string
	for range 64 {
		grant, err := p1.Grant(ctx, s.Ready.SessionID)
		must(t, err)
		grants = append(grants, grant)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p1.Base+"/grants", strings.NewReader(`{"session_id":"`+string(s.Ready.SessionID)+`"}`))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+p1.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); resp.StatusCode != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 600 {
		t.Errorf("the 65th: %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if list, _ := published(t, s); list.Number != 0 {
		t.Errorf("something was voided: %+v", list)
	}
	for _, grant := range []string{grants[0], grants[63]} {
		_, err := p1.Ticket(ctx, grant, s.Ready.SessionID, s.Ready.PTYID)
		must(t, err)
	}
	_, err = s.Ready.User("carol").Grant(ctx, s.Ready.SessionID)
	must(t, err)
}
