package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/deploy/extension"
	"github.com/fairlead/fairlead/protocol/jws"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"controlplane": main})
}

// copyAuditLog copies the log that the format's own tests have.
func copyAuditLog(env *testscript.Env) error {
	const name = "audit-0000000000000001.jsonl"
	log, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "protocol", "audit", "testdata", name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.WorkDir, name), log, 0o600)
}

// writeDeviceKeys writes the keys of two sandboxes.
func writeDeviceKeys(dir string) error {
	for _, name := range []string{"device.jwk", "other.jwk"} {
		key, err := jws.GenerateDeviceKey()
		if err != nil {
			return err
		}
		private, err := key.MarshalPrivate()
		if err != nil {
			return err
		}
		if err := errors.Join(
			os.WriteFile(filepath.Join(dir, name), key.PublicJWK(), 0o600),
			os.WriteFile(filepath.Join(dir, "private-"+name), private, 0o600),
		); err != nil {
			return err
		}
	}
	return nil
}

// TestScripts runs the program; $BUSY is an address that is taken, device.jwk
// and other.jwk are the public keys of two sandboxes, private-device.jwk and
// private-other.jwk their private halves, and there is an audit log
// of ten records.
func TestScripts(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() }) // the scripts run in parallel, after this function
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		// extension says that the browser extension was built, as make does.
		Condition: func(cond string) (bool, error) {
			if cond != "extension" {
				return false, errors.New("unknown condition " + cond)
			}
			return extension.Built(), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"relay":  fakeRelay,
			"status": exitStatus,
			// waitfile waits until a file exists.
			"waitfile": func(ts *testscript.TestScript, _ bool, args []string) {
				deadline := time.Now().Add(time.Minute)
				for range time.Tick(5 * time.Millisecond) {
					if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
						return
					}
					if time.Now().After(deadline) {
						ts.Fatalf("%s was not written", args[0])
					}
				}
			},
			// kid sets a variable to the first kid of a list of keys.
			"kid": func(ts *testscript.TestScript, _ bool, args []string) {
				_, after, _ := strings.Cut(ts.ReadFile(args[1]), `"kid": "`)
				kid, _, _ := strings.Cut(after, `"`)
				ts.Setenv(args[0], kid)
			},
			// dropline copies a file without one line.
			"dropline": func(ts *testscript.TestScript, _ bool, args []string) {
				lines := strings.SplitAfter(ts.ReadFile(args[1]), "\n")
				n, err := strconv.Atoi(args[0])
				ts.Check(err)
				text := strings.Join(slices.Delete(lines, n-1, n), "")
				ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(text), 0o600))
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("BUSY", busy.Addr().String())
			if err := copyAuditLog(env); err != nil {
				return err
			}
			return writeDeviceKeys(env.WorkDir)
		},
	})
}
