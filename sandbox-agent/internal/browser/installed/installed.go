// Package installed finds the browser of a sandbox.
package installed

import (
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/protocol"
)

// programs are Chromium's installed names.
var programs = []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"}

// folders are searched for them, whatever the agent's PATH is.
var folders = []string{"/usr/local/bin", "/usr/bin", "/bin", "/snap/bin", "/opt/google/chrome"}

// Chromium returns the path of the installed Chromium or Chrome. Its error
// is of kind unavailable and says what to install.
func Chromium() (string, error) {
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
