package wire

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// A header is encoded as the lengths of its key and value, 2 bytes each and big-endian, then key and value.

func appendHeader(dst []byte, k, v string) []byte {
	dst = append(dst, byte(len(k)>>8), byte(len(k)), byte(len(v)>>8), byte(len(v)))
	dst = append(dst, k...)
	return append(dst, v...)
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// parseHeaders decodes a header block; nil if it is empty. It fails if a length exceeds the block, a key is empty or
// duplicate, or the text is not UTF-8.
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
		if _, duplicate := headers[key]; duplicate {
			return nil, violation("duplicate header %.40q", key)
		}
		headers[key] = string(b[k : k+v])
		b = b[k+v:]
	}
	return headers, nil
}
