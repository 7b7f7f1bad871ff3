package wire

import "io"

const (
	readBuffer = 64 << 10
	// firstGrab is how much memory a message's announced length alone can claim; beyond it, memory follows the bytes that came.
	firstGrab = 1 << 20
)

// frameReader cuts a stream into frames with one read for as many as came together.
type frameReader struct {
	r          io.Reader
	maxPayload int64
	buf        []byte
	from, to   int // what is read and not yet taken
}

func newFrameReader(r io.Reader, maxPayload int64) *frameReader {
	return &frameReader{r: r, maxPayload: maxPayload, buf: make([]byte, readBuffer)}
}

// next returns a frame's fixed part and the bytes behind it. These stay valid until the next call only, unless owned.
func (f *frameReader) next() (h head, rest []byte, owned bool, err error) {
	if err = f.fill(frameHeader); err != nil {
		return h, nil, false, err
	}
	if h, err = parseHead(f.buf[f.from:f.to], f.maxPayload); err != nil {
		return h, nil, false, err
	}
	if h.length > len(f.buf) {
		rest, err = f.large(h.length)
		return h, rest, true, err
	}
	if err = f.fill(h.length); err != nil {
		return h, nil, false, err
	}
	rest = f.buf[f.from+frameHeader : f.from+h.length]
	f.from += h.length
	return h, rest, false, nil
}

// fill reads until n bytes, at most the buffer's size, are there to be taken.
func (f *frameReader) fill(n int) error {
	if f.to-f.from >= n {
		return nil
	}
	if f.from == f.to {
		f.from, f.to = 0, 0
	} else if f.from+n > len(f.buf) {
		f.to = copy(f.buf, f.buf[f.from:f.to])
		f.from = 0
	}
	for f.to-f.from < n {
		got, err := f.r.Read(f.buf[f.to:])
		f.to += got
		if err != nil && f.to-f.from < n {
			if err == io.EOF && f.to > f.from {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// large reads a frame that does not fit the buffer into memory of its own, and returns what is behind its fixed part.
func (f *frameReader) large(length int) ([]byte, error) {
	have := copy(f.buf, f.buf[f.from+frameHeader:f.to])
	rest, err := readGrowing(f.r, f.buf[:have], length-frameHeader)
	f.from, f.to = 0, 0
	return rest, err
}

// readGrowing returns n bytes: those of start, then from r.
func readGrowing(r io.Reader, start []byte, n int) ([]byte, error) {
	b := make([]byte, min(n, max(firstGrab, len(start))))
	have := copy(b, start)
	for {
		got, err := io.ReadFull(r, b[have:])
		have += got
		if have == n {
			return b, nil
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		bigger := make([]byte, min(n, 4*len(b)))
		copy(bigger, b)
		b = bigger
	}
}
