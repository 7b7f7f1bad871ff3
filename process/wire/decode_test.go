package wire

// DecodeFrame decodes the first frame of b, which must contain all of it, and returns its length. maxPayload is in
// bytes.
func DecodeFrame(b []byte, maxPayload int64) (Frame, int, error) {
	if len(b) < frameHeadSize {
		return Frame{}, 0, violation("a frame cut off after %d bytes", len(b))
	}
	h, err := parseHead(b, maxPayload)
	if err != nil {
		return Frame{}, 0, err
	}
	if len(b) < h.length {
		return Frame{}, 0, violation("a frame cut off after %d of %d bytes", len(b), h.length)
	}
	f, err := h.frame(b[frameHeadSize:h.length])
	return f, h.length, err
}
