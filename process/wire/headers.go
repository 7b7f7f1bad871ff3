package wire

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// A header is encoded as the lengths of its key and value in two bytes each, then key and value. Lengths are big-endian.

func appendHeader(dst []byte, k, v string) []byte {
	dst = append(dst, byte(len(k)>>8), byte(len(k)), byte(len(v)>>8), byte(len(v)))
	dst = append(dst, k...)
	return append(dst, v...)
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// parseHeaders decodes a header block: nil when it is empty, an error when a length points past its end, a key is empty or
// comes twice, or the text is not UTF-8.
func parseHeaders(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	headers := make(map[string]string)
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, violation("a header cut off in its lengths")
		}
		k, v := int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
		if b = b[4:]; len(b) < k+v {
			return nil, violation("a header longer than its block")
		}
		if k == 0 {
			return nil, violation("a header without a key")
		}
		if !utf8.Valid(b[:k]) || !utf8.Valid(b[k:k+v]) {
			return nil, violation("a header that is not UTF-8")
		}
		key := string(b[:k])
		if _, twice := headers[key]; twice {
			return nil, violation("header %.40q comes twice", key)
		}
		headers[key] = string(b[k : k+v])
		b = b[k+v:]
	}
	return headers, nil
}
