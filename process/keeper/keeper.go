// Package keeper holds the processes of an agent that is being upgraded: their descriptors and records. The old agent
// executes its own program as the keeper and exits; the new agent takes everything over through a Unix socket in the
// state directory. If none comes in time, or one fails in the middle, the keeper kills the processes. If the keeper
// itself is killed, the reaper does, for the keeper holds its pipe.
package keeper

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/reaper"
	"github.com/tempool/tempool/process/reexec"
	"github.com/tempool/tempool/process/tree"
)

// Name is the keeper's argv[0].
const Name = "tempool-keeper"

// SocketName is the name of the keeper's socket in the state directory.
const SocketName = "keeper.sock"

// The keeper's descriptors. Those of the processes follow.
const (
	listenerFD = reexec.FilesFD + iota
	reaperFD
	firstFD
)

// hand is what the keeper is started with.
type hand struct {
	Socket string     `json:"socket"`
	KeepMS int64      `json:"keep_ms"`
	Items  []itemHead `json:"items"`
}

type itemHead struct {
	Key    tree.Key        `json:"key"`
	Record json.RawMessage `json:"record"`
	Files  int             `json:"files"`
}

// The bytes with which the two sides talk.
const (
	itemFollows = 'i' // with the descriptors of a process; then its record, a JSON object
	itemGot     = 'g'
	allSent     = 'a'
	allTaken    = 't'
)

const (
	// takeTimeout bounds one take-over.
	takeTimeout = 30 * time.Second
	// maxRecord bounds a record, in bytes.
	maxRecord = 16 << 20
	// maxFiles bounds the descriptors of one process.
	maxFiles = 32
)

// A program that is executed as the keeper becomes it, as with the launcher.
func init() {
	if len(os.Args) > 0 && os.Args[0] == Name {
		run()
	}
}

// run is the main function of the keeper. It never returns.
func run() {
	in, ready := reexec.Enter()
	if protect() != nil {
		syscall.Exit(1)
	}
	k := keeper{reaper: os.NewFile(reaperFD, "reaper")}
	if err := k.receive(in); err != nil {
		syscall.Exit(1)
	}
	ready()
	if k.serve() {
		reaper.Dismiss(k.reaper)
	} else {
		reaper.KillAll(k.trees())
	}
	_ = os.Remove(k.hand.Socket)
	syscall.Exit(0)
}

type keeper struct {
	hand     hand
	listener *net.UnixListener
	reaper   *os.File
}

// receive reads what the keeper was started with.
func (k *keeper) receive(in io.Reader) error {
	if err := json.NewDecoder(in).Decode(&k.hand); err != nil {
		return err
	}
	file := os.NewFile(listenerFD, "listener")
	listener, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return err
	}
	k.listener = listener.(*net.UnixListener) // Start made it
	return nil
}

func (k *keeper) trees() map[string]tree.Key {
	trees := make(map[string]tree.Key)
	for _, item := range k.hand.Items {
		trees[item.Key.Cookie] = item.Key
	}
	return trees
}

// serve waits for an agent and reports whether it has taken everything over. After an attempt that failed midway nobody
// knows which of the two sides has a process, so there is no second one.
func (k *keeper) serve() bool {
	if err := k.listener.SetDeadline(time.Now().Add(time.Duration(k.hand.KeepMS) * time.Millisecond)); err != nil {
		return false
	}
	for {
		conn, err := k.listener.AcceptUnix()
		if err != nil {
			return false
		}
		if !k.mayTake(conn) {
			conn.Close()
			continue
		}
		k.listener.Close()
		defer conn.Close()
		return k.give(conn) == nil
	}
}

// mayTake reports whether the peer is a program of the agent's user, and no worker's. One that has ended may not take
// anything: a worker may have its connection.
func (k *keeper) mayTake(conn *net.UnixConn) bool {
	pid, uid, known := tree.PeerOf(conn)
	if !known || int(uid) != os.Geteuid() {
		return false
	}
	id, found := tree.Identify(pid)
	roots, cookies := map[int]bool{}, map[string]bool{}
	for _, item := range k.hand.Items {
		roots[item.Key.Root.PID], cookies[item.Key.Cookie] = true, true
	}
	return found && !tree.Belongs(pid, roots, cookies, func(tree.Identity) bool { return false }) && id.Exists()
}

// give sends everything to the agent, and returns when that has taken it over.
func (k *keeper) give(conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(takeTimeout)); err != nil {
		return err
	}
	next := firstFD
	for _, item := range k.hand.Items {
		var files []int
		for range item.Files {
			files = append(files, next)
			next++
		}
		if _, _, err := conn.WriteMsgUnix([]byte{itemFollows}, unix.UnixRights(files...), nil); err != nil {
			return err
		}
		if _, err := conn.Write(item.Record); err != nil {
			return err
		}
		// so that few descriptors are under way, which the kernel bounds, and nothing follows the record
		if err := expect(conn, itemGot); err != nil {
			return err
		}
	}
	if _, err := conn.Write([]byte{allSent}); err != nil {
		return err
	}
	return expect(conn, allTaken)
}

func expect(in io.Reader, want byte) error {
	var got [1]byte
	if _, err := io.ReadFull(in, got[:]); err != nil {
		return err
	}
	if got[0] != want {
		return fmt.Errorf("unexpected message %q; expected %q", got[0], want)
	}
	return nil
}
