//go:build linux || darwin

package process

import (
	"os"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// tryLock locks the file or fails at once. The lock ends when the last descriptor of this opening of the file is closed.
func tryLock(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
