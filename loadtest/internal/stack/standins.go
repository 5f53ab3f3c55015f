package stack

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/deploy/program/standin"
)

const (
	// sandboxConfig is the file with further flags of the sandboxes' agents.
	sandboxConfig = "sandbox.yaml"
	// openTemp is where terminals' users can reach what is put there.
	openTemp = "/var/tmp"
	// standInRole is the subcommand of loadtest that is a stand-in.
	standInRole = "stand-in"
)

// installStandIns puts this program into a folder of its own, which everybody may
// read, under the names of coding agents' programs, and tells the sandboxes'
// agents of it by a file in dir. It returns the folder, also after an error.
func installStandIns(dir string) (folder string, err error) {
	if folder, err = os.MkdirTemp(openTemp, "fairlead-loadtest-"); err != nil {
		return "", err
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		return folder, err
	}
	self, err := os.Executable()
	if err != nil {
		return folder, err
	}
	program := filepath.Join(folder, "loadtest")
	if err := copyProgram(self, program); err != nil {
		return folder, err
	}
	if err := standin.Install(folder, program, standInRole); err != nil {
		return folder, err
	}
	return folder, os.WriteFile(filepath.Join(dir, sandboxConfig), fmt.Appendf(nil, "program-path: [%q]\n", folder), 0o600)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closing := out.Close(); err == nil {
		err = closing
	}
	return err
}
