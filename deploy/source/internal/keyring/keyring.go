// Package keyring asks a Linux desktop's keyring for the password with which a
// browser encrypts its cookies: by D-Bus, from the Secret Service or from KWallet.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
)

// asking bounds how long a person may take to unlock their keyring.
const asking = 2 * time.Minute

// ErrNone says that there is no keyring, or nothing of the browser in it.
var ErrNone = errors.New("no keyring has it: neither the Secret Service nor KWallet")

// A Browser is one by the name that it has in keyrings: "Chrome".
type Browser string

// Password returns the browser's password. It may have the desktop ask the person to unlock the keyring. It fails
// with ErrNone, and with an error that tells why a keyring that is there doesn't
// answer.
func (b Browser) Password(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	bus, err := session(ctx)
	if err != nil {
		return "", errors.New("there is no D-Bus session: run this in the desktop's session, or give --keyring-password-file")
	}
	defer bus.Close()
	var faults []error
	for _, ring := range []func(context.Context, *dbus.Conn, string) (string, error){secretService, kwallet} {
		password, err := ring(ctx, bus, string(b))
		if err == nil {
			return password, nil
		}
		if !errors.Is(err, ErrNone) {
			faults = append(faults, err)
		}
	}
	if len(faults) > 0 {
		return "", errors.Join(faults...)
	}
	return "", ErrNone
}

// session connects to the desktop's bus. It starts none: on that no keyring would be.
func session(ctx context.Context) (*dbus.Conn, error) {
	bus, err := dbus.SessionBusPrivateNoAutoStartup(dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := bus.Auth(nil); err != nil {
		return nil, errors.Join(err, bus.Close())
	}
	if err := bus.Hello(); err != nil {
		return nil, errors.Join(err, bus.Close())
	}
	return bus, nil
}

// there reports whether somebody has a name on the bus, or would be started for it.
func there(ctx context.Context, bus *dbus.Conn, name string) bool {
	for _, method := range []string{"org.freedesktop.DBus.ListNames", "org.freedesktop.DBus.ListActivatableNames"} {
		var names []string
		if bus.BusObject().CallWithContext(ctx, method, 0).Store(&names) == nil && slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// The Secret Service, https://specifications.freedesktop.org/secret-service.
const (
	secrets     = "org.freedesktop.secrets"
	secretsPath = "/org/freedesktop/secrets"
	service     = "org.freedesktop.Secret.Service."
	item        = "org.freedesktop.Secret.Item."
	noPrompt    = dbus.ObjectPath("/")
)

// schemas are those with which Chromium has stored it.
var schemas = []string{"chrome_libsecret_os_crypt_password_v2", "chrome_libsecret_os_crypt_password"}

func secretService(ctx context.Context, bus *dbus.Conn, browser string) (string, error) {
	if !there(ctx, bus, secrets) {
		return "", ErrNone
	}
	ring := bus.Object(secrets, secretsPath)
	var output dbus.Variant
	var session dbus.ObjectPath
	if err := ring.CallWithContext(ctx, service+"OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&output, &session); err != nil {
		return "", fmt.Errorf("the Secret Service: %w", err)
	}
	for _, schema := range schemas {
		var open, locked []dbus.ObjectPath
		if err := ring.CallWithContext(ctx, service+"SearchItems", 0, map[string]string{"xdg:schema": schema}).Store(&open, &locked); err != nil {
			return "", fmt.Errorf("the Secret Service: %w", err)
		}
		for i, path := range slices.Concat(open, locked) {
			at := bus.Object(secrets, path)
			if label, err := at.GetProperty(item + "Label"); err != nil || label.Value() != browser+" Safe Storage" {
				continue
			}
			if i >= len(open) {
				if err := unlock(ctx, bus, path); err != nil {
					return "", err
				}
			}
			return secretOf(ctx, at, session)
		}
	}
	return "", ErrNone
}

func secretOf(ctx context.Context, at dbus.BusObject, session dbus.ObjectPath) (string, error) {
	var secret struct {
		Session     dbus.ObjectPath
		Parameters  []byte
		Value       []byte
		ContentType string
	}
	if err := at.CallWithContext(ctx, item+"GetSecret", 0, session).Store(&secret); err != nil {
		return "", fmt.Errorf("the Secret Service: %w", err)
	}
	return string(secret.Value), nil
}

// unlock unlocks an item, for which the service may prompt the person.
func unlock(ctx context.Context, bus *dbus.Conn, path dbus.ObjectPath) error {
	var done []dbus.ObjectPath
	var prompt dbus.ObjectPath
	if err := bus.Object(secrets, secretsPath).CallWithContext(ctx, service+"Unlock", 0, []dbus.ObjectPath{path}).Store(&done, &prompt); err != nil {
		return fmt.Errorf("the Secret Service: %w", err)
	}
	if prompt == noPrompt {
		return nil
	}
	matches := []dbus.MatchOption{dbus.WithMatchObjectPath(prompt), dbus.WithMatchInterface("org.freedesktop.Secret.Prompt"), dbus.WithMatchMember("Completed")}
	if err := bus.AddMatchSignalContext(ctx, matches...); err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 4)
	bus.Signal(signals)
	defer bus.RemoveSignal(signals)
	if err := bus.Object(secrets, prompt).CallWithContext(ctx, "org.freedesktop.Secret.Prompt.Prompt", 0, "").Err; err != nil {
		return fmt.Errorf("the Secret Service: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return errors.New("nobody has unlocked the keyring")
		case s := <-signals:
			if s == nil || s.Path != prompt || len(s.Body) == 0 {
				continue
			}
			if dismissed, _ := s.Body[0].(bool); dismissed {
				return errors.New("the keyring stays locked")
			}
			return nil
		}
	}
}

// wallets are the names of KWallet's versions, with the paths of their objects.
var wallets = [][2]string{{"org.kde.kwalletd6", "/modules/kwalletd6"}, {"org.kde.kwalletd5", "/modules/kwalletd5"}}

const (
	kde   = "org.kde.KWallet."
	appID = "fairlead-source"
)

func kwallet(ctx context.Context, bus *dbus.Conn, browser string) (string, error) {
	for _, w := range wallets {
		if !there(ctx, bus, w[0]) {
			continue
		}
		wallet := bus.Object(w[0], dbus.ObjectPath(w[1]))
		var name, password string
		var handle int32
		if err := wallet.CallWithContext(ctx, kde+"networkWallet", 0).Store(&name); err != nil {
			return "", fmt.Errorf("KWallet: %w", err)
		}
		if err := wallet.CallWithContext(ctx, kde+"open", 0, name, int64(0), appID).Store(&handle); err != nil {
			return "", fmt.Errorf("KWallet: %w", err)
		}
		if handle < 0 {
			return "", errors.New("KWallet stays locked")
		}
		if err := wallet.CallWithContext(ctx, kde+"readPassword", 0, handle, browser+" Keys", browser+" Safe Storage", appID).Store(&password); err != nil {
			return "", fmt.Errorf("KWallet: %w", err)
		}
		if password != "" {
			return password, nil
		}
	}
	return "", ErrNone
}
