package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/process/reexec"
	"github.com/tempool/tempool/process/tree"
)

// Item is one process.
type Item struct {
	Key    tree.Key
	Record json.RawMessage // the keeper does not read it
	Files  []*os.File      // at most 32
}

// Close closes the files.
func (i Item) Close() {
	for _, file := range i.Files {
		file.Close()
	}
}

// Start gives the items to a keeper that listens on socket, and returns when it has them. reaper is a descriptor of the
// pipe of the reaper that watches them. The keeper kills what no agent has taken over after keepFor.
func Start(ctx context.Context, socket string, reaper *os.File, items []Item, keepFor time.Duration) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier keeper: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	listening, err := listener.File()
	if err != nil {
		return err
	}
	defer listening.Close()
	h := hand{Socket: socket, KeepMS: keepFor.Milliseconds()}
	files := []*os.File{listening, reaper}
	for _, item := range items {
		h.Items = append(h.Items, itemHead{item.Key, item.Record, len(item.Files)})
		files = append(files, item.Files...)
	}
	pipe, cmd, err := reexec.Start(ctx, []string{Name, socket}, files, h)
	if err != nil {
		return fmt.Errorf("the keeper did not take the processes: %w", err)
	}
	pipe.Close()
	go func() { _ = tree.WaitChild(cmd) }() // it usually outlives this program
	return nil
}

// Takeover is what a keeper has given. Either Done or Abort must follow.
type Takeover struct {
	Items []Item
	conn  *net.UnixConn
}

// Take asks the keeper that listens on socket for its processes. It returns nil without an error if there is none.
func Take(ctx context.Context, socket string) (*Takeover, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t := &Takeover{conn: connection.(*net.UnixConn)}
	if err := t.receive(); err != nil {
		t.Abort()
		return nil, fmt.Errorf("take over the processes of the previous agent: %w", err)
	}
	return t, nil
}

func (t *Takeover) receive() error {
	if err := t.conn.SetDeadline(time.Now().Add(takeTimeout)); err != nil {
		return err
	}
	for {
		var kind [1]byte
		rights := make([]byte, unix.CmsgSpace(4*maxFiles))
		n, got, flags, _, err := t.conn.ReadMsgUnix(kind[:], rights)
		switch {
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		case flags&unix.MSG_CTRUNC != 0:
			return errors.New("too few file descriptors are free in this program")
		case kind[0] == allSent:
			return nil
		case kind[0] != itemFollows:
			return fmt.Errorf("unexpected message %q from the keeper", kind[0])
		}
		files, err := filesOf(rights[:got])
		t.Items = append(t.Items, Item{Files: files})
		if err != nil {
			return err
		}
		record := json.NewDecoder(io.LimitReader(t.conn, maxRecord))
		if err := record.Decode(&t.Items[len(t.Items)-1].Record); err != nil {
			return fmt.Errorf("the keeper's record, of at most %d bytes: %w", maxRecord, err)
		}
		if _, err := t.conn.Write([]byte{itemGot}); err != nil {
			return err
		}
	}
}

// filesOf returns the descriptors of a message as files.
func filesOf(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "of a worker"))
		}
	}
	return files, nil
}

// Done dismisses the keeper: this program owns the processes.
func (t *Takeover) Done() error {
	defer t.conn.Close()
	_, err := t.conn.Write([]byte{allTaken})
	return err
}

// Abort has the keeper kill the processes. It does nothing on nil.
func (t *Takeover) Abort() {
	if t == nil {
		return
	}
	t.conn.Close()
	for _, item := range t.Items {
		item.Close()
	}
}
