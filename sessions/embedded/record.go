package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tempool/tempool/sessions"
)

// A record is a CRC-32C of the bytes after it, the format number, the four numbers of the header and the body. Numbers
// are big-endian.
const (
	recordFormat = 1
	recordHead   = 4 + 1 + 4*8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("a record is damaged")

// encodeRecord encodes a session; body is its Body.
func encodeRecord(s *sessions.Session, body []byte) []byte {
	r := make([]byte, 4, recordHead+len(body))
	r = append(r, recordFormat)
	h := s.Header()
	for _, n := range []int64{h.Version, h.CreatedAt, h.LastAccessed, h.TTL} {
		r = binary.BigEndian.AppendUint64(r, uint64(n))
	}
	r = append(r, body...)
	binary.BigEndian.PutUint32(r, crc32.Checksum(r[4:], castagnoli))
	return r
}

func decodeRecord(r []byte) (h sessions.Header, body []byte, err error) {
	if len(r) < recordHead || binary.BigEndian.Uint32(r) != crc32.Checksum(r[4:], castagnoli) {
		return h, nil, errDamaged
	}
	if r[4] != recordFormat {
		return h, nil, fmt.Errorf("a record has format %d, this version supports %d", r[4], recordFormat)
	}
	for i, n := range []*int64{&h.Version, &h.CreatedAt, &h.LastAccessed, &h.TTL} {
		*n = int64(binary.BigEndian.Uint64(r[5+8*i:]))
	}
	return h, r[recordHead:], nil
}

func decodeSession(id string, record []byte) (*sessions.Session, error) {
	h, body, err := decodeRecord(record)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	s := h.Session(id)
	return s, s.SetBody(body)
}
