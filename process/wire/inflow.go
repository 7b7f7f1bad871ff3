package wire

import (
	"io"
)

// readLoop brings the bytes of a stream to a frameReader, and calls took after each portion. It ends with the stream, or with the
// error of took.
func readLoop(r io.Reader, f *frameReader, handle func() error) error {
	for {
		n, err := r.Read(f.space())
		f.filled(n)
		if n > 0 {
			if err := handle(); err != nil {
				return err
			}
		}
		if err != nil {
			return readError(err, f)
		}
	}
}

func readError(err error, f *frameReader) error {
	if err == io.EOF && f.partial() {
		return io.ErrUnexpectedEOF
	}
	return err
}
