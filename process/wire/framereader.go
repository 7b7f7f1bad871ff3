package wire

const (
	// The read buffer begins small, since most workers wait most of the time for little, and grows with what comes.
	initialBuffer = 4 << 10
	maxReadBuffer = 64 << 10
	// initialAlloc is how much memory a message's announced length alone can claim; beyond it, memory follows the bytes that came.
	initialAlloc = 1 << 20
)

// frameReader cuts a stream into frames, several of which may come with one read. Whoever reads the stream puts bytes into space, says
// how many with filled, and takes frames with next until there is none.
type frameReader struct {
	maxPayload int64
	buf        []byte
	from, to   int // what was read into buf and is not yet taken

	// A frame that does not fit buf is read into memory of its own.
	large     head
	largeRest []byte // what is behind its fixed part, as far as memory was claimed; nil while there is no such frame
	largeRead int
}

func newFrameReader(maxPayload int64) *frameReader {
	return &frameReader{maxPayload: maxPayload, buf: make([]byte, initialBuffer)}
}

// space is where the next bytes of the stream belong; never empty.
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
		if len(buf) < maxReadBuffer { // there is more to come at once
			buf = make([]byte, 4*len(buf))
		}
		f.to = copy(buf, f.buf[f.from:f.to])
		f.from, f.buf = 0, buf
	}
	return f.buf[f.to:]
}

// filled says that n bytes were put into space.
func (f *frameReader) filled(n int) {
	if f.largeRest != nil {
		f.largeRead += n
	} else {
		f.to += n
	}
}

// release gives the memory back; the reader reads no more.
func (f *frameReader) release() { f.buf, f.largeRest = nil, nil }

// partial tells whether the stream is in the middle of a frame.
func (f *frameReader) partial() bool { return f.from < f.to || f.largeRest != nil }

// next returns a frame's fixed part and the bytes behind it; ok is false when none is complete. The bytes stay valid until space is
// called only, unless owned.
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
