package wire

import (
	"io"
)

// inflow brings the bytes of a stream to a frameReader, and calls took after each portion. It ends with the stream, or with the
// error of took.
func inflow(r io.Reader, f *frameReader, took func() error) error {
	for {
		n, err := r.Read(f.space())
		f.filled(n)
		if n > 0 {
			if err := took(); err != nil {
				return err
			}
		}
		if err != nil {
			return ended(err, f)
		}
	}
}

func ended(err error, f *frameReader) error {
	if err == io.EOF && f.partial() {
		return io.ErrUnexpectedEOF
	}
	return err
}
