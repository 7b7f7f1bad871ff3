// Package buildinfo names the build of the running program.
package buildinfo

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Info is a build.
type Info struct {
	// "unknown" if the program does not know its build, "(devel)" for one that has no version
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // "" if not known
	Modified bool   `json:"modified"` // built from a modified work tree
}

// Read returns the build of this program.
func Read() Info {
	info, known := debug.ReadBuildInfo()
	if !known {
		return Info{Version: "unknown"}
	}
	b := Info{Version: cmp.Or(info.Main.Version, "(devel)")}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

// String is the version and, if known, the start of the commit.
func (i Info) String() string {
	return strings.TrimSpace(i.Version + " " + i.Commit[:min(12, len(i.Commit))])
}
