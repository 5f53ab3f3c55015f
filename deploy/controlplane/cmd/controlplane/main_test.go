package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/protocol/jws"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"controlplane": main})
}

// TestScripts runs the program; $BUSY is an address that is taken, device.jwk
// and other.jwk are the public keys of two sandboxes.
func TestScripts(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() }) // the scripts run in parallel, after this function
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// waitfile waits until a file exists.
			"waitfile": func(ts *testscript.TestScript, _ bool, args []string) {
				deadline := time.Now().Add(10 * time.Second)
				for range time.Tick(5 * time.Millisecond) {
					if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
						return
					}
					if time.Now().After(deadline) {
						ts.Fatalf("%s was not written", args[0])
					}
				}
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("BUSY", busy.Addr().String())
			for _, name := range []string{"device.jwk", "other.jwk"} {
				key, err := jws.GenerateDeviceKey()
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(env.WorkDir, name), key.PublicJWK(), 0o600); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
