package wire

import (
	"errors"
	"io"
	"os"
)

const (
	// The read buffer starts small, since most workers are idle, and grows when it is full.
	initialBuffer = 1 << 10
	maxReadBuffer = 64 << 10
	// initialAlloc bounds the memory allocated for a message by its announced length; more is allocated as bytes arrive.
	initialAlloc = 1 << 20
)

// frameReader splits a stream into frames; one read may contain several. Its user reads into space, calls filled with
// the number of bytes, and calls next until there is no frame.
type frameReader struct {
	maxPayload int64
	buf        []byte
	from, to   int // the unread part of buf

	// A frame that does not fit into buf gets its own memory.
	large     head
	largeRest []byte // what follows its fixed part, as far as it is allocated; nil while there is no such frame
	largeRead int
}

func newFrameReader(maxPayload int64) *frameReader {
	return &frameReader{maxPayload: maxPayload, buf: make([]byte, initialBuffer)}
}

// space returns where to put the next bytes of the stream; never empty.
func (f *frameReader) space() []byte {
	if f.largeRest != nil {
		return f.largeRest[f.largeRead:]
	}
	full := f.to == len(f.buf)
	if f.from == f.to {
		f.from, f.to = 0, 0
	}
	if full {
		buf := f.buf
		if len(buf) < maxReadBuffer { // the stream has more bytes ready
			buf = make([]byte, 4*len(buf))
		}
		f.to = copy(buf, f.buf[f.from:f.to])
		f.from, f.buf = 0, buf
	}
	return f.buf[f.to:]
}

// filled adds the n bytes that were put into space.
func (f *frameReader) filled(n int) {
	if f.largeRest != nil {
		f.largeRead += n
	} else {
		f.to += n
	}
}

// release drops the memory. The reader must not be used any more.
func (f *frameReader) release() { f.buf, f.largeRest = nil, nil }

// partial reports whether the stream is in the middle of a frame.
func (f *frameReader) partial() bool { return f.from < f.to || f.largeRest != nil }

// next returns a frame's fixed part and the bytes that follow it; ok is false if no frame is complete. Unless owned,
// the bytes are valid only until the next call of space.
func (f *frameReader) next() (h head, rest []byte, owned, ok bool, err error) {
	if f.largeRest != nil {
		return f.nextLarge()
	}
	if f.to-f.from < frameHeadSize {
		return h, nil, false, false, nil
	}
	if h, err = parseHead(f.buf[f.from:f.to], f.maxPayload); err != nil {
		return h, nil, false, false, err
	}
	if h.length > maxReadBuffer {
		f.large = h
		f.largeRest = make([]byte, min(h.length-frameHeadSize, initialAlloc))
		f.largeRead = copy(f.largeRest, f.buf[f.from+frameHeadSize:f.to])
		f.from, f.to = 0, 0
		return h, nil, false, false, nil
	}
	if f.to-f.from < h.length {
		return h, nil, false, false, nil
	}
	rest = f.buf[f.from+frameHeadSize : f.from+h.length]
	f.from += h.length
	return h, rest, false, true, nil
}

func (f *frameReader) nextLarge() (h head, rest []byte, owned, ok bool, err error) {
	need := f.large.length - frameHeadSize
	if f.largeRead == need {
		h, rest, f.largeRest = f.large, f.largeRest, nil
		return h, rest, true, true, nil
	}
	if f.largeRead == len(f.largeRest) {
		bigger := make([]byte, min(need, 4*len(f.largeRest)))
		copy(bigger, f.largeRest)
		f.largeRest = bigger
	}
	return f.large, nil, false, false, nil
}

// readLoop reads a stream into a frameReader and calls handle after each read. It ends with the stream or with the
// error of handle.
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
			return cutOff(err, f.partial())
		}
	}
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
