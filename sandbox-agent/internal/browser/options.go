// Package browser runs a Chromium for each session that asks for one, as a user
// of its own, with tools for coding agents and people to drive it.
package browser

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/jarfile"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
)

const (
	// DefaultIdleTimeout is how long an unused Chromium keeps running.
	DefaultIdleTimeout = 5 * time.Minute
	// DefaultMax bounds the running Chromiums.
	DefaultMax = 8
	// nobody is the uid and gid of that user.
	nobody = 65534
)

// Options configure a Browser. Dir and Log must be set.
type Options struct {
	// Exec returns the program's path; nil: [installed.Chromium].
	Exec func() (path string, err error)
	// Dir holds profiles for the life of their sessions. New makes and empties it.
	// The users from Accounts must be able to pass through its parents.
	Dir string
	// Accounts gives a session's Chromium its user; nil: nobody if the agent is
	// root, otherwise the agent's own user.
	Accounts Accounts
	// Start starts cmd, the leader of a new session, and returns a function that
	// kills it and its descendants. It may add to cmd's environment. It is called
	// on a thread that ends with the program. nil: cmd is started unchanged, and
	// its process group killed.
	Start func(cmd *exec.Cmd) (kill func(), err error)
	// Egress is how pages reach the network; nil: directly.
	Egress Egress
	// Ports say which ports of this machine pages may reach; nil: none.
	Ports Ports
	// Peers tell the user at the other end of a loopback connection; nil: not
	// checked.
	Peers peer.Users
	// IdleTimeout is how long an unused Chromium keeps running; 0:
	// DefaultIdleTimeout. Watching doesn't count as use.
	IdleTimeout time.Duration
	// Max bounds the running Chromiums; 0: DefaultMax.
	Max int
	// Files writes cookies into the profile of a Chromium that doesn't run; without a
	// command all wait for its next start.
	Files jarfile.Writer
	// Secrets are masked in what people see of browsers; nil: no masking.
	Secrets *mask.Secrets
	// Metrics count refusals; may be nil.
	Metrics *Metrics
	Log     *slog.Logger

	kept  KeptCookies   // see Keep; nil: none
	leave time.Duration // in tests: replaces leaveTimeout; 0: leaveTimeout
}

// KeptCookies are what sessions' Chromiums are given before their first page.
type KeptCookies interface {
	// Kept returns a session's. It waits for nothing but the disk.
	Kept(session protocol.SessionID) []seal.Cookie
}

// Accounts are users that programs may run as.
type Accounts interface {
	// ReserveUID returns a user without processes, reserved until release is
	// called. Both are −1 if there is only the agent's own user.
	ReserveUID() (uid, gid int, release func(), err error)
}

// Egress is the way to the network.
type Egress interface {
	// Confine restricts a user to the session's egress proxy, if it has one, until
	// free is called.
	Confine(session protocol.SessionID, uid int) (free func(), err error)
	// BrowserProxy returns the session's egress proxy with its credentials, or nil
	// if it has none now. It is called for each connection. The agent connects to
	// it, not Chromium's user.
	BrowserProxy(session protocol.SessionID) *url.URL
}

// Ports say who owns the ports of this machine, at any address.
type Ports interface {
	// Owns reports whether the agent itself listens on a port.
	Owns(port int) bool
	// Belongs reports whether a program of the session's terminals listens on a
	// port. It fails if the listener can't be determined.
	Belongs(session protocol.SessionID, port int) (bool, error)
}

// An Account is a user. To keep sessions apart, its Chromium must be its only
// program.
type Account struct {
	UID, GID int    // −1: the agent's own, which must not be root
	Release  func() // nil: nothing to do
}

func (a Account) credential() *syscall.Credential {
	if a.UID < 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
}

// own gives a file or folder to the account.
func (a Account) own(path string) error {
	if a.UID < 0 {
		return nil
	}
	return os.Lchown(path, a.UID, a.GID)
}

var errRoot = protocol.Errorf(protocol.KindUnavailable, "the browser has no user to run as, and is never run as root")

// account returns the user of a session's Chromium.
func (o *Options) account(session protocol.SessionID) (Account, error) {
	a := Account{UID: -1, GID: -1}
	if o.Accounts != nil {
		var err error
		if a.UID, a.GID, a.Release, err = o.Accounts.ReserveUID(); err != nil {
			return Account{}, err
		}
	} else if os.Geteuid() == 0 {
		a.UID, a.GID = nobody, nobody
	}
	if a.UID == 0 || a.GID == 0 || a.UID < 0 && os.Geteuid() == 0 {
		a.release()
		return Account{}, errRoot
	}
	if o.Egress == nil || a.UID < 0 {
		return a, nil
	}
	free, err := o.Egress.Confine(session, a.UID)
	if err != nil {
		a.release()
		return Account{}, err
	}
	return Account{UID: a.UID, GID: a.GID, Release: func() {
		free()
		a.release()
	}}, nil
}

func (a Account) release() {
	if a.Release != nil {
		a.Release()
	}
}

// startAlone starts cmd without Options.Start.
func startAlone(cmd *exec.Cmd) (func(), error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	return func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }, nil // it may have ended
}

// makeProfile makes the folder of a session's Chromium, if necessary.
func makeProfile(dir string, a Account) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the browser's folder: %w", err)
	}
	if err := a.own(dir); err != nil {
		return fmt.Errorf("make the browser's folder: %w", err)
	}
	return nil
}

// makeTemp makes a temporary folder for one Chromium. Its path is short
// wherever profiles are, as Chromium makes a socket in it, whose path is
// limited to 107 bytes.
func makeTemp(a Account) (dir string, err error) {
	if dir, err = os.MkdirTemp("/tmp", "fairlead-chromium-"); err != nil {
		return "", fmt.Errorf("make the browser's folder: %w", err)
	}
	if err := a.own(dir); err != nil {
		return "", errors.Join(fmt.Errorf("make the browser's folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// A tail keeps the last bytes written to it.
type tail struct {
	text []byte
	max  int
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - t.max; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

var _ io.Writer = (*tail)(nil)
