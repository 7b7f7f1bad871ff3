// Package sandbox restricts which files and networks a worker reaches. The launcher enters a sandbox before it executes
// the program; all descendants inherit it. Whatever the host's kernel cannot do is an error, never ignored.
package sandbox

import "os"

// Sandbox is what one program may reach. The zero value restricts nothing.
type Sandbox struct {
	// Files restricts the file system to Read and Write, with PrivateTmp to the temporary directories, and to devices
	// such as /dev/null. Without ReadAll, only these can be read and executed.
	Files   bool     `json:"files,omitempty"`
	ReadAll bool     `json:"read_all,omitempty"`
	Read    []string `json:"read,omitempty"`
	Write   []string `json:"write,omitempty"`
	// NoNetwork means that only a loopback interface of the program's own exists.
	NoNetwork bool `json:"no_network,omitempty"`
	// PrivateTmp means an empty /tmp and /var/tmp in memory, in which only the directories of Keep are visible.
	PrivateTmp bool     `json:"private_tmp,omitempty"`
	Keep       []string `json:"keep,omitempty"`
	// Join are descriptors of the Namespaces that the program enters instead of new ones.
	Join []int `json:"join,omitempty"`
	// Dir is the program's directory.
	Dir string `json:"dir,omitempty"`
}

// Namespaces are the open namespaces of a sandbox that is in use.
type Namespaces []*os.File

// Close closes the files.
func (n Namespaces) Close() {
	for _, file := range n {
		file.Close()
	}
}

// devices can be written to in every sandbox: programs need them, and they store nothing.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// tmpDirs are made private by PrivateTmp.
var tmpDirs = []string{"/tmp", "/var/tmp"}

// IsZero reports whether the sandbox restricts nothing.
func (s Sandbox) IsZero() bool { return !s.Files && !s.hasNamespaces() }

func (s Sandbox) hasNamespaces() bool { return s.NoNetwork || s.PrivateTmp }
