//go:build !linux

package wire

import "io"

// splitSocket is for Linux alone: other pollers watch reading and writing apart.
func splitSocket(out io.WriteCloser) (io.WriteCloser, *socketReader) {
	return out, newSocketReader(out)
}
