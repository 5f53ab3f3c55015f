package keyring

import (
	"bufio"
	"errors"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// aBus starts a message bus of the test's own, and returns a connection for who has
// the keyring.
func aBus(t *testing.T) *dbus.Conn {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is missing: apt-get install dbus")
	}
	daemon := exec.Command(path, "--session", "--nofork", "--print-address")
	out, err := daemon.StdoutPipe()
	must(t, err)
	must(t, daemon.Start())
	t.Cleanup(func() { _ = daemon.Process.Kill(); _ = daemon.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", strings.TrimSpace(address))
	bus, err := dbus.Connect(strings.TrimSpace(address))
	must(t, err)
	t.Cleanup(func() { _ = bus.Close() })
	return bus
}

func named(t *testing.T, bus *dbus.Conn, name string) {
	t.Helper()
	reply, err := bus.RequestName(name, dbus.NameFlagDoNotQueue)
	must(t, err)
	if reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply)
	}
}

// A secretRing is a Secret Service with one item, which may be locked. The bus calls it
// from goroutines of its own.
type secretRing struct {
	bus       *dbus.Conn
	locked    atomic.Bool
	dismissed atomic.Bool
}

const (
	itemPath   = dbus.ObjectPath("/org/freedesktop/secrets/item/1")
	promptPath = dbus.ObjectPath("/org/freedesktop/secrets/prompt/1")
)

func (r *secretRing) OpenSession(string, dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	return dbus.MakeVariant(""), "/org/freedesktop/secrets/session/1", nil
}

func (r *secretRing) SearchItems(about map[string]string) (open, locked []dbus.ObjectPath, _ *dbus.Error) {
	if about["xdg:schema"] != "chrome_libsecret_os_crypt_password_v2" {
		return nil, nil, nil
	}
	if r.locked.Load() {
		return nil, []dbus.ObjectPath{itemPath}, nil
	}
	return []dbus.ObjectPath{itemPath}, nil, nil
}

func (r *secretRing) Unlock([]dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	return nil, promptPath, nil
}

func (r *secretRing) Prompt(string) *dbus.Error {
	dismissed := r.dismissed.Load()
	r.locked.Store(dismissed)
	_ = r.bus.Emit(promptPath, "org.freedesktop.Secret.Prompt.Completed", dismissed, dbus.MakeVariant([]dbus.ObjectPath{}))
	return nil
}

type secret struct {
	Session     dbus.ObjectPath
	Parameters  []byte
	Value       []byte
	ContentType string
}

func (r *secretRing) GetSecret(session dbus.ObjectPath) (secret, *dbus.Error) {
	if r.locked.Load() {
		return secret{}, dbus.NewError("org.freedesktop.Secret.Error.IsLocked", nil)
	}
	return secret{session, nil, []byte("the ring's"), "text/plain"}, nil
}

// TestSecretService: the browser's item is found by its label; the desktop may have to
// ask the person, who may not want to.
func TestSecretService(t *testing.T) {
	bus := aBus(t)
	r := &secretRing{bus: bus}
	must(t, bus.Export(r, secretsPath, "org.freedesktop.Secret.Service"))
	must(t, bus.Export(r, itemPath, "org.freedesktop.Secret.Item"))
	must(t, bus.Export(r, promptPath, "org.freedesktop.Secret.Prompt"))
	_, err := prop.Export(bus, itemPath, prop.Map{"org.freedesktop.Secret.Item": {"Label": {Value: "Chrome Safe Storage"}}})
	must(t, err)
	named(t, bus, secrets)
	want := func(browser Browser, password, says string) {
		t.Helper()
		got, err := browser.Password(t.Context())
		if got != password || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", got, err)
		}
	}
	want("Chrome", "the ring's", "")
	want("Brave", "", ErrNone.Error())
	r.locked.Store(true)
	want("Chrome", "the ring's", "")
	r.locked.Store(true)
	r.dismissed.Store(true)
	want("Chrome", "", "stays locked")
}

// A wallet is KWallet. The bus calls it from goroutines of its own.
type wallet struct{ closed atomic.Bool }

func (w *wallet) NetworkWallet() (string, *dbus.Error) { return "kdewallet", nil }

func (w *wallet) Open(string, int64, string) (int32, *dbus.Error) {
	if w.closed.Load() {
		return -1, nil
	}
	return 7, nil
}

func (w *wallet) ReadPassword(_ int32, folder, key, _ string) (string, *dbus.Error) {
	if folder == "Chromium Keys" && key == "Chromium Safe Storage" {
		return "the wallet's", nil
	}
	return "", nil
}

// TestKWallet: of either version.
func TestKWallet(t *testing.T) {
	for _, about := range wallets {
		bus := aBus(t)
		w := &wallet{}
		must(t, bus.ExportWithMap(w, map[string]string{"NetworkWallet": "networkWallet", "Open": "open", "ReadPassword": "readPassword"}, dbus.ObjectPath(about[1]), "org.kde.KWallet"))
		named(t, bus, about[0])
		if got, err := Browser("Chromium").Password(t.Context()); got != "the wallet's" || err != nil {
			t.Errorf("%s: %q, %v", about[0], got, err)
		}
		if _, err := Browser("Chrome").Password(t.Context()); !errors.Is(err, ErrNone) {
			t.Error(err)
		}
		w.closed.Store(true)
		if _, err := Browser("Chromium").Password(t.Context()); err == nil || !strings.Contains(err.Error(), "stays locked") {
			t.Error(err)
		}
	}
}

// TestNothing: a bus without a keyring, and no bus.
func TestNothing(t *testing.T) {
	aBus(t)
	if _, err := Browser("Chrome").Password(t.Context()); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for _, address := range []string{"unix:path=/nowhere", ""} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		if _, err := Browser("Chrome").Password(t.Context()); err == nil || !strings.Contains(err.Error(), "--keyring-password-file") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
