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
)

// victimVariable makes the test program a process that writes into the store at this path until it is killed.
const victimVariable = "TEMPOOL_TEST_STORE"

const writers = 8

// writeUntilKilled counts up one number in each writer's session, and prints the writer and the number once it is acknowledged.
func writeUntilKilled(path string) {
	store, err := Open(Options{Path: path, Sync: SyncAlways})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for w := range writers {
		go func() {
			for {
				n, err := count(store, w)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Printf("%d %d\n", w, n) // one write to a pipe: it is there before the kill, or not at all
			}
		}()
	}
	select {}
}

func count(store sessions.Store, writer int) (n int, err error) {
	ctx, id := context.Background(), strconv.Itoa(writer)
	if _, err := store.Create(ctx, &sessions.Session{ID: id}); err != nil && api.CodeOf(err) != api.CodeSessionExists {
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
		victim := exec.Command(os.Args[0])
		victim.Env = append(os.Environ(), victimVariable+"="+path)
		victim.Stderr = os.Stderr
		out, err := victim.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, victim.Start())
		deadline := time.AfterFunc(30*time.Second, func() { _ = victim.Process.Kill() })
		lines, left := bufio.NewScanner(out), 1+rand.IntN(100)
		for lines.Scan() {
			var w, n int
			_, err := fmt.Sscan(lines.Text(), &w, &n)
			require.NoError(t, err)
			require.Greater(t, n, acknowledged[w])
			acknowledged[w] = n
			if left--; left == 0 {
				require.NoError(t, victim.Process.Kill())
			}
		}
		require.ErrorContains(t, victim.Wait(), "killed")
		require.True(t, deadline.Stop(), "the victim wrote nothing for too long")
		require.LessOrEqual(t, left, 0)

		store := start(t, Options{Path: path})
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
