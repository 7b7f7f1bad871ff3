package sessions_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/embedded"
	"github.com/tempool/tempool/sessions/redis"
	"github.com/tempool/tempool/sessions/redis/redistest"
	"github.com/tempool/tempool/spec"
)

func filled(t *testing.T, n int) sessions.Store {
	store := embedded.InMemory(bounded(n+1, spec.OnFullRefuse))
	for i := range n {
		_, err := sessions.Create(t.Context(), store,
			&sessions.Session{ID: fmt.Sprintf("s%05d", i), Data: map[string]json.RawMessage{"k": raw(fmt.Sprint(`"<`, i, `>"`))},
				TTL: spec.Duration(90 * time.Minute)})
		require.NoError(t, err)
	}
	return store
}

func backup(t *testing.T, store sessions.Store) string {
	t.Helper()
	ids := idsOf(t, store)
	var out bytes.Buffer
	n, err := sessions.WriteBackup(t.Context(), store, ids, "p", time.Now(), &out)
	require.NoError(t, err)
	require.Equal(t, len(ids), n)
	return out.String()
}

func TestABackupOfAStoreRestoresItExactly(t *testing.T) {
	const n = 1000
	from := filled(t, n)
	update(t, from, "s00007", "k", `"changed"`)
	text := backup(t, from)
	require.Equal(t, n+2, strings.Count(text, "\n"))
	require.Contains(t, text, `"<9>"`, "HTML is not escaped")

	to := embedded.InMemory(sessions.Config{})
	done, err := sessions.Import(t.Context(), to, "p", false, strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, api.SessionImport{Created: n}, done)
	want, got := list(t, from, ""), list(t, to, "")
	require.Equal(t, len(want), len(got))
	for i := range want {
		require.True(t, sessions.Equal(want[i], got[i]), "%+v %+v", want[i], got[i])
	}

	update(t, to, "s00008", "k", "3")
	require.NoError(t, to.Delete(t.Context(), "s00009"))
	done, err = sessions.Import(t.Context(), to, "p", false, strings.NewReader(strings.TrimSuffix(text, "\n")))
	require.NoError(t, err)
	require.Equal(t, api.SessionImport{Created: 1, Kept: n - 1}, done)
	kept := get(t, to, "s00008")
	require.Equal(t, "3", string(kept.Data["k"]))
	require.Equal(t, int64(2), kept.Version)
}

func TestADamagedBackupNamesItsLine(t *testing.T) {
	lines := strings.SplitAfter(backup(t, filled(t, 40)), "\n")
	lines = lines[:len(lines)-1]
	edit := func(at int, replacement ...string) string {
		return strings.Join(lines[:at], "") + strings.Join(replacement, "") + strings.Join(lines[at+1:], "")
	}
	long := `{"id":"x","data":{"k":"` + strings.Repeat("x", sessions.MaxBody) +
		`"},"version":1,"created_at":"2026-01-01T00:00:00Z","last_accessed":"2026-01-01T00:00:00Z","ttl":"1h"}` + "\n"
	for name, c := range map[string]struct {
		text string
		code api.Code
		says string
	}{
		"nothing":            {"", api.CodeInvalid, "line 1: the backup is empty"},
		"something else":     {"hello\n", api.CodeInvalid, "line 1: this is not a backup"},
		"a list of sessions": {`{"sessions":[]}`, api.CodeInvalid, "line 1: this is not a backup"},
		"a later format": {strings.Replace(edit(40, lines[40]), `"format_version":1`, `"format_version":2`, 1),
			api.CodeInvalid, "line 1: the backup has format_version 2"},
		"another pool": {strings.Replace(edit(40, lines[40]), `"pool":"p"`, `"pool":"q"`, 1),
			api.CodeInvalid, `line 1: the backup is of pool "q", not of p`},
		"a line that is no JSON": {edit(20, "{\n"), api.CodeInvalid, "line 21: not a session"},
		"an empty line":          {edit(20, "\n"), api.CodeInvalid, "line 21: not a session"},
		"null":                   {edit(20, "null\n"), api.CodeInvalid, "line 21: a session id must have"},
		"an unknown field": {edit(20, `{"id":"x","dta":{}}`+"\n"), api.CodeInvalid,
			`line 21: not a session: json: unknown field "dta"`},
		"two values in a line": {edit(20, "{} {}\n"), api.CodeInvalid, "line 21: not a session"},
		"no version":           {edit(20, `{"id":"x"}`+"\n"), api.CodeInvalid, "line 21: session x is inconsistent"},
		"a long line": {edit(20, strings.Repeat(" ", 2*sessions.MaxBody+1)), api.CodePayloadTooLarge,
			"line 21: the line has more than"},
		"a large session":     {edit(20, long), api.CodePayloadTooLarge, "line 21: session x has"},
		"the first line only": {lines[0], api.CodeInvalid, "line 2: the backup ends without its last line"},
		"cut off after a line": {strings.Join(lines[:30], ""), api.CodeInvalid,
			"line 31: the backup ends without its last line, so it is incomplete: it has 29 sessions"},
		"cut off within a line": {strings.Join(lines[:30], "")[:len(strings.Join(lines[:30], ""))-9], api.CodeInvalid,
			"line 30: not a session"},
		"a line is missing": {edit(20), api.CodeInvalid,
			"line 41: the last line names 40 sessions, and the backup has 39"},
		"a line is there twice": {edit(20, lines[20], lines[20]), api.CodeInvalid,
			"line 43: the last line names 40 sessions, and the backup has 41"},
		"two backups behind each other": {edit(40, lines[40], lines[41], lines[0]), api.CodeInvalid,
			"line 43: the backup continues after its last line"},
	} {
		_, err := sessions.Import(t.Context(), embedded.InMemory(sessions.Config{}), "p", false, strings.NewReader(c.text))
		require.ErrorIs(t, err, &api.Error{Code: c.code}, name)
		require.ErrorContains(t, err, c.says, name)
	}
	done, err := sessions.Import(t.Context(), embedded.InMemory(sessions.Config{}), "q", true,
		strings.NewReader(strings.Join(lines, "")))
	require.NoError(t, err)
	require.Equal(t, 40, done.Created)
}

func TestAnImportThatFailsSaysWhatItDid(t *testing.T) {
	text := backup(t, filled(t, 40))
	bounds := bounded(20, spec.OnFullEvict)
	full := embedded.InMemory(sessions.Config{Settings: func() spec.Sessions { return bounds.Settings() }})
	done, err := sessions.Import(t.Context(), full, "p", false, strings.NewReader(text))
	require.ErrorIs(t, err, api.ErrStoreFull)
	require.Regexp(
		t, `line \d+: the session store is full at 20 sessions .*\(20 created, 0 replaced, 0 kept, 0 expired; `+
			`repeating the import keeps what is done\)`, err.Error())
	require.Equal(t, api.SessionImport{Created: 20}, done)
	bounds = bounded(100, spec.OnFullRefuse)
	done, err = sessions.Import(t.Context(), full, "p", false, strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, api.SessionImport{Created: 20, Kept: 20}, done)

	damaged := strings.Replace(text, `"s00035"`, `"s 00035"`, 1)
	_, err = sessions.Import(t.Context(), embedded.InMemory(sessions.Config{}), "p", false, strings.NewReader(damaged))
	require.ErrorContains(t, err, `line 37: invalid session id "s 00035"`)
	require.ErrorContains(t, err, "(39 created")
}

func TestSessionsThatExpiredSinceTheBackupAreNotImported(t *testing.T) {
	text := backup(t, filled(t, 3))
	to := embedded.InMemory(sessions.Config{Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	done, err := sessions.Import(t.Context(), to, "p", false, strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, api.SessionImport{Expired: 3}, done)
}

// interruptedReader reads little at a time, and interrupts at some offset.
type interruptedReader struct {
	in        io.Reader
	left      int
	interrupt func()
}

func (r *interruptedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p[:min(len(p), 512)])
	if before := r.left; before > 0 && before <= n {
		r.interrupt()
	}
	r.left -= n
	return n, err
}

func TestAnImportIsRepeatedAfterTheServerWasKilled(t *testing.T) {
	const n = 200
	server := redistest.Start(t)
	store, err := redis.Open(redis.Options{URL: server.URL()})
	require.NoError(t, err)
	defer store.Close()
	text := backup(t, filled(t, n))
	done, err := sessions.Import(t.Context(), store, "p", false,
		&interruptedReader{strings.NewReader(text), len(text) / 2, server.Kill})
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	require.Regexp(t, fmt.Sprintf(`: line \d+: .*\(%d created, 0 replaced, 0 kept, 0 expired; `, done.Created),
		err.Error())
	require.Positive(t, done.Created)
	require.Less(t, done.Created, n)
	server.Restart()
	again, err := sessions.Import(t.Context(), store, "p", false, strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, n, again.Created+again.Kept)
	require.GreaterOrEqual(t, again.Kept, done.Created, "what was counted is there")
}

// brokenWriter fails after some bytes, as a full disk does.
type brokenWriter struct{ room int }

var errNoSpace = errors.New("no space left on device")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, errNoSpace
	}
	return len(p), nil
}

func TestABackupThatCannotBeWrittenOrReadFails(t *testing.T) {
	store := filled(t, 40)
	ids := idsOf(t, store)
	for _, room := range []int{0, 1000} {
		_, err := sessions.WriteBackup(t.Context(), store, ids, "p", time.Now(), &brokenWriter{room})
		require.ErrorIs(t, err, errNoSpace)
	}
	var out bytes.Buffer
	n, err := sessions.WriteBackup(t.Context(), store, append(ids, "gone"), "p", time.Now(), &out)
	require.NoError(t, err)
	require.Equal(t, 40, n, "a session that ended since the listing is left out")
	require.NoError(t, store.Close())
	_, err = sessions.WriteBackup(t.Context(), store, ids, "p", time.Now(), &out)
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	_, err = sessions.Import(t.Context(), store, "p", false, strings.NewReader(backup(t, filled(t, 3))))
	require.ErrorIs(t, err, api.ErrStoreUnavailable)
	require.ErrorContains(t, err, "line 2: ")
}
