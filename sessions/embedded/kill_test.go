package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// killTestVariable makes the test binary write to the store at this path until it is killed.
const killTestVariable = "TEMPOOL_TEST_STORE"

const writers = 8

// writeUntilKilled increments a number in each writer's session, and prints the writer and each acknowledged number.
// Meanwhile it restores an old version of these sessions again and again.
func writeUntilKilled(path string) {
	store, err := Open(Options{Path: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for w := range writers {
		go func() {
			for {
				n, err := increment(store, w)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Printf("%d %d\n", w, n) // one write to a pipe: the line arrives completely or not at all
			}
		}()
	}
	for {
		for w := range writers {
			if err := restoreOld(store, w); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}

func restoreOld(store sessions.Store, writer int) error {
	now := time.Now()
	_, _, err := store.Put(context.Background(), &sessions.Session{
		ID: strconv.Itoa(writer), Version: 1, CreatedAt: now.Add(-time.Hour), LastAccessed: now,
		TTL:  spec.Duration(time.Hour),
		Data: map[string]json.RawMessage{"n": json.RawMessage("0")},
	}, sessions.ToRestore)
	return err
}

func increment(store sessions.Store, writer int) (n int, err error) {
	ctx, id := context.Background(), strconv.Itoa(writer)
	_, err = sessions.Create(ctx, store, &sessions.Session{ID: id})
	if err != nil && api.CodeOf(err) != api.CodeSessionExists {
		return 0, err
	}
	_, err = store.Update(ctx, id, func(s *sessions.Session) error {
		n, _ = strconv.Atoi(string(s.Data["n"]))
		n++
		s.Data["n"] = json.RawMessage(strconv.Itoa(n))
		return nil
	})
	return n, err
}

func TestNoAcknowledgedWriteIsLostInFiftyKills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	acknowledged := make([]int, writers)
	for kill := range 50 {
		writer := exec.Command(os.Args[0])
		writer.Env = append(os.Environ(), killTestVariable+"="+path)
		writer.Stderr = os.Stderr
		out, err := writer.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())
		deadline := time.AfterFunc(waitTimeout, func() { _ = writer.Process.Kill() })
		lines, remaining := bufio.NewScanner(out), 1+rand.IntN(100)
		for lines.Scan() {
			var w, n int
			require.NoError(t, errorOf(fmt.Sscan(lines.Text(), &w, &n)))
			require.Greater(t, n, acknowledged[w])
			acknowledged[w] = n
			if remaining--; remaining == 0 {
				require.NoError(t, writer.Process.Kill())
			}
		}
		require.ErrorContains(t, writer.Wait(), "killed")
		require.True(t, deadline.Stop(), "no output")
		require.LessOrEqual(t, remaining, 0)

		store := openStore(t, Options{Path: path})
		for w, n := range acknowledged {
			s, err := store.Get(t.Context(), strconv.Itoa(w))
			if n == 0 && api.CodeOf(err) == api.CodeSessionNotFound {
				continue
			}
			require.NoError(t, err)
			stored, _ := strconv.Atoi(string(s.Data["n"]))
			require.GreaterOrEqual(t, stored, n, "after kill %d", kill+1)
			acknowledged[w] = stored
		}
		require.NoError(t, store.Close())
	}
}
