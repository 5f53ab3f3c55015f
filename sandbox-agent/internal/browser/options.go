// Package browser runs a Chromium for each session that asks for one, as a user
// of its own, and gives coding agents and people tools to drive it.
package browser

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
)

const (
	// DefaultIdleTimeout is how long a Chromium that no tool uses stays.
	DefaultIdleTimeout = 5 * time.Minute
	// DefaultMax bounds the Chromiums that run at a time.
	DefaultMax = 8
	// nobody is the user and the group of that name.
	nobody = 65534
)

// Options are what a Browser works with. Dir and Log must be set.
type Options struct {
	// Exec returns the program to start; nil: FindChromium.
	Exec func() (path string, err error)
	// Dir is where profiles are kept while their session lasts. It is made,
	// emptied by New, and the users that Account gives must be able to pass
	// through its parents.
	Dir string
	// Accounts gives a session's Chromium the user that it runs as; nil: nobody
	// where the agent is root, else the agent's own user.
	Accounts Accounts
	// Start starts cmd, which leads a session of its own, and returns how to kill
	// it and all that it has started. It may add to cmd's environment. It is called
	// on a thread of its own, which ends with the program. nil: it is
	// started as it is, and its process group killed.
	Start func(cmd *exec.Cmd) (kill func(), err error)
	// Egress is how pages reach the network; nil: directly.
	Egress Egress
	// Ports tell which of this machine's pages may connect to; nil: none.
	Ports Ports
	// PeerUID returns the user at the other end of a loopback connection, as
	// package peer tells. nil: not checked.
	PeerUID func(local, remote netip.AddrPort) (int, error)
	// IdleTimeout is how long a Chromium that no tool uses stays; 0:
	// DefaultIdleTimeout. Watching is no use.
	IdleTimeout time.Duration
	// Max bounds the Chromiums that run at a time; 0: DefaultMax.
	Max int
	// Secrets are masked in what people see of browsers; nil: none.
	Secrets *mask.Secrets
	// Metrics count what is refused; nil: nothing is counted.
	Metrics *Metrics
	Log     *slog.Logger

	leave time.Duration // in tests: how long a page may take to be able to be left; 0: leaveTimeout
}

// Accounts are users that programs may run as.
type Accounts interface {
	// ReserveUID returns one that nothing runs as, until release is called. Both
	// are −1 where there is only the agent's own user.
	ReserveUID() (uid, gid int, release func(), err error)
}

// Egress is the way to the network.
type Egress interface {
	// Confine keeps a user to the session's egress proxy if it has one, until free
	// is called.
	Confine(session protocol.SessionID, uid int) (free func(), err error)
	// BrowserProxy returns the session's egress proxy with its credentials, or nil
	// when it has none at the moment. It is asked for each connection. The agent
	// itself connects there, not Chromium's user.
	BrowserProxy(session protocol.SessionID) *url.URL
}

// Ports tell whose the ports of this machine are, whatever their address.
type Ports interface {
	// Owns reports whether the agent itself listens on a port.
	Owns(port int) bool
	// Belongs reports whether a program of the session's terminals listens on a
	// port. It fails when nobody that can be seen does.
	Belongs(session protocol.SessionID, port int) (bool, error)
}

// An Account is a user. Its Chromium must be the only program that it runs
// where sessions are to be kept apart.
type Account struct {
	UID, GID int    // −1: the agent's own, which root's can't be
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

// programs are the names under which Chromium is installed.
var programs = []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"}

// folders are where they are looked for, whatever the agent's PATH is.
var folders = []string{"/usr/local/bin", "/usr/bin", "/bin", "/snap/bin", "/opt/google/chrome"}

// FindChromium returns the path of the installed Chromium or Chrome. Its error,
// of kind unavailable, says what to install.
func FindChromium() (string, error) {
	for _, folder := range folders {
		for _, name := range programs {
			path := filepath.Join(folder, name)
			if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", protocol.Errorf(protocol.KindUnavailable,
		"there is no browser in this sandbox: install the package chromium (or google-chrome-stable) in its image")
}

// startAlone starts cmd without the façade's help.
func startAlone(cmd *exec.Cmd) (func(), error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	return func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }, nil // it may have ended
}

// makeProfile makes the folder of a session's Chromium, if need be.
func makeProfile(dir string, a Account) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the browser's folder: %w", err)
	}
	if err := a.own(dir); err != nil {
		return fmt.Errorf("make the browser's folder: %w", err)
	}
	return nil
}

// makeTemp makes a folder for what one Chromium has for a while. Its path is
// short, wherever profiles are: Chromium has a socket in it, whose path may be
// 107 bytes long.
func makeTemp(a Account) (dir string, err error) {
	if dir, err = os.MkdirTemp("/tmp", "fairlead-chromium-"); err != nil {
		return "", fmt.Errorf("make the browser's folder: %w", err)
	}
	if err := a.own(dir); err != nil {
		return "", errors.Join(fmt.Errorf("make the browser's folder: %w", err), os.RemoveAll(dir))
	}
	return dir, nil
}

// A tail keeps the last bytes that are written to it.
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
