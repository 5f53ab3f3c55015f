// Package browsers finds the browsers of Chromium's family that somebody has, and
// the profiles in them.
package browsers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLocalState bounds the file that names the profiles, in bytes.
const maxLocalState = 16 << 20

// A Brand is a browser as its vendor ships it.
type Brand struct {
	Name     string // as it is typed
	Title    string // as people know it
	Keyring  string // what it is called in a keyring
	Keychain string // and in macOS's

	linux  []string // its folders below the configuration's, or the home (beginning with ~)
	darwin []string // below ~/Library/Application Support
}

// Brands are the browsers that are known, in the order in which they are looked for.
var Brands = []Brand{
	{
		"chrome", "Google Chrome", "Chrome", "Chrome",
		[]string{"google-chrome", "google-chrome-beta", "google-chrome-unstable", "~/.var/app/com.google.Chrome/config/google-chrome"},
		[]string{"Google/Chrome", "Google/Chrome Beta"},
	},
	{
		"chromium", "Chromium", "Chromium", "Chromium",
		[]string{"chromium", "~/snap/chromium/common/chromium", "~/.var/app/org.chromium.Chromium/config/chromium"},
		[]string{"Chromium"},
	},
	{
		"brave", "Brave", "Brave", "Brave",
		[]string{"BraveSoftware/Brave-Browser", "~/snap/brave/current/.config/BraveSoftware/Brave-Browser", "~/.var/app/com.brave.Browser/config/BraveSoftware/Brave-Browser"},
		[]string{"BraveSoftware/Brave-Browser"},
	},
	{
		"edge", "Microsoft Edge", "Chromium", "Microsoft Edge", // on Linux it uses Chromium's name
		[]string{"microsoft-edge", "microsoft-edge-beta", "microsoft-edge-dev", "~/.var/app/com.microsoft.Edge/config/microsoft-edge"},
		[]string{"Microsoft Edge"},
	},
}

// Names returns how the brands are typed.
func Names() (all []string) {
	for _, b := range Brands {
		all = append(all, b.Name)
	}
	return all
}

// A Profile is one that has a cookie file.
type Profile struct {
	Brand   Brand
	Folder  string // "Default" or "Profile 1"
	Name    string // what the person calls it
	Cookies string // the file's path
}

// String names the profile.
func (p Profile) String() string {
	if p.Name == "" || p.Name == p.Folder {
		return p.Brand.Title + " (" + p.Folder + ")"
	}
	return fmt.Sprintf("%s (%s, %q)", p.Brand.Title, p.Folder, p.Name)
}

// A Place is where somebody's browsers are.
type Place struct {
	Home   string
	Config string // Linux: ~/.config, or what XDG_CONFIG_HOME says
	Darwin bool
}

// Profiles returns the profiles of all brands, those of one brand together and the
// one that was used last first.
func (p Place) Profiles() (all []Profile) {
	for _, b := range Brands {
		for _, dir := range p.folders(b) {
			all = append(all, profilesIn(b, dir)...)
		}
	}
	return all
}

func (p Place) folders(b Brand) (all []string) {
	if p.Darwin {
		for _, dir := range b.darwin {
			all = append(all, filepath.Join(p.Home, "Library", "Application Support", dir))
		}
		return all
	}
	for _, dir := range b.linux {
		if below, inHome := strings.CutPrefix(dir, "~/"); inHome {
			all = append(all, filepath.Join(p.Home, below))
		} else {
			all = append(all, filepath.Join(p.Config, dir))
		}
	}
	return all
}

// profilesIn returns the profiles in a browser's folder.
func profilesIn(b Brand, dir string) (all []Profile) {
	names, last := localState(dir)
	for _, folder := range append(slices.Sorted(maps.Keys(names)), "Default") {
		if slices.ContainsFunc(all, func(p Profile) bool { return p.Folder == folder }) || !filepath.IsLocal(folder) {
			continue
		}
		if file := cookieFile(filepath.Join(dir, folder)); file != "" {
			all = append(all, Profile{b, folder, names[folder], file})
		}
	}
	slices.SortStableFunc(all, func(x, y Profile) int {
		switch last {
		case x.Folder:
			return -1
		case y.Folder:
			return 1
		}
		return 0
	})
	return all
}

// cookieFile returns where a profile has its cookies: newer ones keep them in a folder
// of the network's.
func cookieFile(profile string) string {
	for _, name := range []string{filepath.Join("Network", "Cookies"), "Cookies"} {
		path := filepath.Join(profile, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// localState returns what profiles are called, and which one was used last. What
// can't be read says nothing.
func localState(dir string) (names map[string]string, last string) {
	f, err := os.Open(filepath.Join(dir, "Local State"))
	if err != nil {
		return nil, ""
	}
	defer f.Close()
	var state struct {
		Profile struct {
			Last  string                           `json:"last_used"`
			Cache map[string]struct{ Name string } `json:"info_cache"`
		} `json:"profile"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxLocalState)).Decode(&state); err != nil {
		return nil, ""
	}
	names = map[string]string{}
	for folder, about := range state.Profile.Cache {
		names[folder] = about.Name
	}
	return names, state.Profile.Last
}

// Choose returns the one profile that somebody means: by the brand's name, and the
// profile's folder or name, each of which may be empty.
func (p Place) Choose(brand, profile string) (Profile, error) {
	if brand != "" && !slices.Contains(Names(), brand) {
		return Profile{}, fmt.Errorf("browser %q: it is one of %s", brand, strings.Join(Names(), ", "))
	}
	all := p.Profiles()
	for _, found := range all {
		if (brand == "" || found.Brand.Name == brand) && (profile == "" || found.Folder == profile || found.Name == profile) {
			return found, nil
		}
	}
	if len(all) == 0 {
		return Profile{}, errors.New("no Chrome, Chromium, Brave or Edge has been used here")
	}
	there := make([]string, len(all))
	for i, found := range all {
		there[i] = found.String()
	}
	return Profile{}, fmt.Errorf("no such browser or profile; there is %s", strings.Join(there, ", "))
}

// Of returns the profile whose cookie file is at path, of a brand: for one that was
// put elsewhere.
func Of(brand, path string) Profile {
	p := Profile{Folder: filepath.Base(filepath.Dir(path)), Cookies: path}
	for _, b := range Brands {
		if b.Name == brand || brand == "" && b.Name == "chromium" {
			p.Brand = b
		}
	}
	return p
}
