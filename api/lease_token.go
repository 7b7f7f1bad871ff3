package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Bounds of a lease's token, in bytes.
const (
	MinLeaseTokenBytes = 22 // 128 random bits in base64
	MaxLeaseTokenBytes = 128
)

// NewLeaseToken returns a random token, which is the authority to use a lease. The program that checks a worker out
// makes it; the worker's workflow stores only its hash.
func NewLeaseToken() string { return rand.Text() } // 130 random bits

// HashLeaseToken returns the hash of a lease's token as hexadecimal digits, "" for no token.
func HashLeaseToken(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// CheckLeaseToken returns CodeInvalid for a token that a client made too short, too long or with characters that need
// escaping in a URL.
func CheckLeaseToken(token string) *Error {
	if len(token) < MinLeaseTokenBytes || len(token) > MaxLeaseTokenBytes {
		return Errorf(CodeInvalid, "token has %d bytes; give %d to %d bytes with at least 128 random bits", len(token),
			MinLeaseTokenBytes, MaxLeaseTokenBytes)
	}
	if strings.ContainsFunc(token, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r == '-' || r == '_')
	}) {
		return Errorf(CodeInvalid, "token may have only letters, digits, '-' and '_'")
	}
	return nil
}

// validTokenHash reports whether text is a HashLeaseToken.
func validTokenHash(text string) bool {
	sum, err := hex.DecodeString(text)
	return err == nil && (len(sum) == 0 || len(sum) == sha256.Size)
}

// SplitLeaseID splits ID~TOKEN; token is "" for an ID alone.
func SplitLeaseID(text string) (id, token string) {
	id, token, _ = strings.Cut(text, "~")
	return id, token
}
