package wire

import (
	"bufio"
	"errors"
	"io"
	"math"
	"os"
)

// frameBuffer is the size of the buffer of frames, in bytes; it is small, since most workers are idle.
const frameBuffer = 4 << 10

// frameReader splits a stream into frames; one read may contain several.
type frameReader struct {
	*bufio.Reader
	maxPayload int64
}

func newFrameReader(in io.Reader, maxPayload int64) frameReader {
	return frameReader{bufio.NewReaderSize(in, frameBuffer), maxPayload}
}

// next returns a frame's fixed part and the bytes that follow it. Unless owned, these are valid only until the next
// call. Its errors are those of parseHead and cutOff.
func (f frameReader) next() (h head, rest []byte, owned bool, err error) {
	start, err := f.Peek(frameHeadSize)
	if err != nil {
		return h, nil, false, cutOff(err, len(start) > 0)
	}
	if h, err = parseHead(start, f.maxPayload); err != nil {
		return h, nil, false, err
	}
	if h.length > f.Size() {
		_, _ = f.Discard(frameHeadSize) // which is buffered
		rest, err = readMessage(f, int64(h.length-frameHeadSize), math.MaxInt64)
		return h, rest, true, err
	}
	whole, err := f.Peek(h.length)
	if err != nil {
		return h, nil, false, cutOff(err, true)
	}
	_, _ = f.Discard(h.length)
	return h, whole[frameHeadSize:], false, nil
}

// cutOff is the error of a stream that has failed; partial says that it was in the middle of a message.
func cutOff(err error, partial bool) error {
	switch {
	case partial && err == io.EOF:
		return io.ErrUnexpectedEOF
	case partial && errors.Is(err, os.ErrDeadlineExceeded):
		return errMidMessage
	}
	return err
}
