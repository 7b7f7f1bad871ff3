// Package buildinfo names the build of the running program.
package buildinfo

import (
	"cmp"
	_ "embed"
	"runtime/debug"
	"strings"
)

// version is that of this tree: of each program and package that is made from it.
//
//go:embed VERSION
var version string

// The linker sets these with -X for a build without version control data, as in an image.
var commit, date string

// Info is a build.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // "" if not known
	Modified bool   `json:"modified"` // built from a modified work tree
	Date     string `json:"date"`     // of the commit or of the build; "" if not known
	Temporal string `json:"temporal"` // version of the Temporal SDK; "" if not known
}

// Read returns the build of this program.
func Read() Info {
	b := Info{Version: strings.TrimSpace(version), Commit: commit, Date: date}
	info, known := debug.ReadBuildInfo()
	if !known {
		return b
	}
	for _, module := range info.Deps {
		if module.Path == "go.temporal.io/sdk" {
			b.Temporal = module.Version
		}
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, setting.Value)
		case "vcs.time":
			b.Date = cmp.Or(b.Date, setting.Value)
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
