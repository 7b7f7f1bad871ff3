//go:build !unix

package worker

// maxOpenFiles is how many files this process may have open; 0 is not known.
func maxOpenFiles() int64 { return 0 }
