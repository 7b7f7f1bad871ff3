package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/format"
	"github.com/tempool/tempool/lifecycle"
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
		0: "-", -time.Second: "-", 57 * time.Microsecond: "0.06ms", 1200 * time.Microsecond: "1.2ms",
		350 * time.Millisecond:  "350ms",
		1500 * time.Millisecond: "1.5s", 12 * time.Second: "12s", 90 * time.Second: "1m30s",
		2*time.Hour + 5*time.Minute: "2h5m", 76 * time.Hour: "3d4h",
	} {
		require.Equal(t, want, formatDuration(d))
	}
}

func TestRatesHaveNoExponent(t *testing.T) {
	for rate, want := range map[float64]string{0: "0", 3.21e-5: "0.000032", 0.456: "0.46", 1.26: "1.3", 2e6: "2000000"} {
		require.Equal(t, want, format.Rate(rate))
	}
}

func TestOneLineFitsACell(t *testing.T) {
	require.Equal(t, "a b c", oneLine(" a\n b\t\tc\n", 10))
	require.Equal(t, "ab…gh", oneLine("abcdefgh", 5))
	require.Equal(t, "ä…ß", oneLine("ä ö  ü ß", 4), "no blank beside the cut")
	require.Equal(t, "…", oneLine("abc", 1))
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
	require.Equal(t, "\r\x1b[K1/2 ready\r\x1b[K2/2 re…a log\n",
		show(&app{format: formatTable, errTerminal: true, width: 13}))
	require.Empty(t, show(&app{format: formatJSON, errTerminal: true}))
}

func TestControlCharactersAreShown(t *testing.T) {
	require.Equal(t, "a\tb \\x1b[31m\\x07 é\\x0a", printable("a\tb \x1b[31m\x07 é\n"))
	require.Equal(t, "a\n\\x9b", printableLines("a\n\u009b"))
	require.Equal(t, "plain", printable("plain"))
}

// Holders, reasons and the output of programs are written by others, and could change the operator's terminal.
func TestNoTextOfOthersHasControlCharacters(t *testing.T) {
	const attack = "evil\x1b]0;title\a\u009b2J"
	view := exampleView()
	view.Workers[0].Lease.Holder, view.Workers[1].Reason = attack, attack
	pool := func(err error) *fakePool {
		return &fakePool{
			name: "python", view: view, err: err,
			history: []lifecycle.Transition{{From: lifecycle.Ready, To: lifecycle.Failed, Reason: attack, Timestamp: noon}},
		}
	}
	event := fakeEvent{event: api.Event{
		ID: "a-1", Source: "/pools/python/workers/0", Type: api.EventWorkerTransitioned, Time: noon,
		Data: json.RawMessage(`{"reason":"evil\u001b[2J"}`),
	}}
	for _, command := range []string{"ps python", "pool status python", "workers stats python", "history python/0",
		"events python"} {
		f := newFakeControlPlane(pool(nil))
		f.events = []fakeEvent{event}
		r := succeed(t, f, strings.Fields(command)...)
		requirePrintable(t, r)
	}
	r := fail(t, newFakeControlPlane(pool(api.Errorf(api.CodeInvalid, attack))), "pool", "scale", "python", "3")
	require.Contains(t, r.err, `evil\x1b]0;title\x07\x9b2J`)
	requirePrintable(t, r)

	var out bytes.Buffer
	a := &app{format: formatTable, err: &out}
	a.warn(attack)
	a.showProgress(attack)
	requirePrintable(t, result{err: out.String()})
}

func requirePrintable(t *testing.T, r result) {
	t.Helper()
	for _, c := range r.out + r.err {
		require.False(t, unicode.IsControl(c) && c != '\n' && c != '\t', "%q", r.out+r.err)
	}
}
