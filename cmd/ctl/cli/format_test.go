package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFormatBytes(t *testing.T) {
	for bytes, want := range map[int64]string{
		-1: "-", 0: "-", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 50 << 20: "50.0 MiB",
		3 << 29: "1.5 GiB", 2 << 40: "2.0 TiB", 5000 << 40: "5000.0 TiB",
	} {
		require.Equal(t, want, formatBytes(bytes))
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", -time.Second: "-", 57 * time.Microsecond: "0.06ms", 1200 * time.Microsecond: "1.2ms", 350 * time.Millisecond: "350ms",
		1500 * time.Millisecond: "1.5s", 12 * time.Second: "12s", 90 * time.Second: "1m30s", 2*time.Hour + 5*time.Minute: "2h5m", 76 * time.Hour: "3d4h",
	} {
		require.Equal(t, want, formatDuration(d))
	}
}

func TestOneLineFitsACell(t *testing.T) {
	require.Equal(t, "a b c", oneLine(" a\n b\t\tc\n", 10))
	require.Equal(t, "abcd…", oneLine("abcdefgh", 5))
	require.Equal(t, "ä ö…", oneLine("ä ö  ü ß", 4))
}

func TestProgressOverwritesOneLineOnATerminal(t *testing.T) {
	show := func(a *app) string {
		var err bytes.Buffer
		a.err = &err
		a.showProgress("1/2 ready")
		a.showProgress("1/2 ready")
		a.showProgress("2/2 ready\nand a log")
		a.endProgress()
		return err.String()
	}
	require.Equal(t, "1/2 ready\n2/2 ready and a log\n", show(&app{format: formatTable}))
	require.Equal(t, "\r\x1b[K1/2 ready\r\x1b[K2/2 ready a…\n", show(&app{format: formatTable, errTerminal: true, width: 13}))
	require.Empty(t, show(&app{format: formatJSON, errTerminal: true}))
}
