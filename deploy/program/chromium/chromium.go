// Package chromium finds this machine's Chromium, and says how it is started
// without a screen.
package chromium

import (
	"errors"
	"os/exec"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/deploy/program"
)

// ErrMissing is the error of a machine without one.
var ErrMissing = program.Hint(errors.New("Chromium is missing"), "apt-get install chromium")

// Find returns where Chromium is.
func Find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// Headless are the options of the Chromium at path. Its profile is a directory of
// its own, which it may leave files in; extension is the directory of an unpacked
// extension, empty for none.
func Headless(path, profile, extension string) []chromedp.ExecAllocatorOption {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Flag("headless", "new"),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)
	if extension == "" {
		return options
	}
	return append(options, chromedp.Flag("disable-extensions", false), chromedp.Flag("load-extension", extension),
		chromedp.Flag("disable-features", "DisableLoadExtensionCommandLineSwitch,Translate"))
}
