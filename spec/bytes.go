package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// bytesAllowed describes a size, for errors.
const bytesAllowed = `a size such as "512MiB", "2GB" or "4096B" (units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)`

// Bytes is a number of bytes that is encoded as a string: "512MiB" is 512 × 1024², "512MB" is 512 × 1000². An empty
// string and 0 mean 0 bytes, which only some keys allow.
type Bytes int64

// Auto, the text "auto", lets Tempool choose a size. Only rotation.max_memory allows it: the limit then follows from
// the memory that each program needs.
const Auto Bytes = -1

const autoText = "auto"

// byteUnits is ordered such that String prefers binary units and parseBytes tries "B" last.
var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// String returns the shortest exact text. It prefers binary units.
func (b Bytes) String() string {
	switch b {
	case 0:
		return "0B"
	case Auto:
		return autoText
	}
	shortest := ""
	for _, unit := range byteUnits {
		text := strconv.FormatInt(int64(b)/unit.factor, 10) + unit.suffix
		if int64(b)%unit.factor == 0 && (shortest == "" || len(text) < len(shortest)) {
			shortest = text
		}
	}
	return shortest
}

// MarshalText returns String.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText parses a number with a unit; "" is 0. A fraction must be a whole number of bytes: "1.5GiB".
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = parseBytes(string(text))
	return err
}

func parseBytes(text string) (Bytes, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	if text == autoText {
		return Auto, nil
	}
	for _, unit := range byteUnits {
		digits, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		if n, ok := wholeBytes(strings.TrimRight(digits, " "), unit.factor); ok {
			return n, nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not %s", text, bytesAllowed)
}

// wholeBytes multiplies without rounding. It accepts plain decimals only: big.Rat would also parse fractions and
// exponents, and a large exponent would allocate as much memory.
func wholeBytes(digits string, factor int64) (Bytes, bool) {
	if len(digits) > 40 || strings.Trim(digits, "0123456789.") != "" {
		return 0, false
	}
	n, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, false
	}
	n.Mul(n, new(big.Rat).SetInt64(factor))
	if !n.IsInt() || !n.Num().IsInt64() {
		return 0, false
	}
	return Bytes(n.Num().Int64()), true
}
