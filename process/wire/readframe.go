package wire

import (
	"fmt"
	"io"
)

// ReadFrame reads one frame. It checks the lengths of the fixed part before it allocates memory for the rest; maxPayload is in bytes. It returns
// io.EOF at the end of the stream between two frames, and a *ProtocolError for a frame that is malformed or cut off.
func ReadFrame(r io.Reader, maxPayload int64) (Frame, error) {
	var fixed [frameHeadSize]byte
	switch n, err := io.ReadFull(r, fixed[:]); {
	case n == 0 && err != nil:
		return Frame{}, err
	case err == io.ErrUnexpectedEOF:
		return Frame{}, violation("a frame cut off after %d bytes", n)
	case err != nil:
		return Frame{}, fmt.Errorf("read a frame: %w", err)
	}
	h, err := parseHead(fixed[:], maxPayload)
	if err != nil {
		return Frame{}, err
	}
	rest := make([]byte, h.length-frameHeadSize)
	if n, err := io.ReadFull(r, rest); err != nil {
		return Frame{}, violation("a frame cut off after %d of %d bytes", frameHeadSize+n, h.length)
	}
	return h.frame(rest)
}
