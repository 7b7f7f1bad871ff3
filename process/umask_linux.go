package process

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// withUmask runs start, which forks, on a thread with an umask of its own. The thread ends with start.
func withUmask(mask int, start func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime discards the thread when the goroutine ends
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			done <- fmt.Errorf("set a separate umask for the new process: %w", err)
			return
		}
		unix.Umask(mask)
		done <- start()
	}()
	return <-done
}
