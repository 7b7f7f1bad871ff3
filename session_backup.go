package tempool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/transport"
)

// ExportSessions writes a backup of the pool's session store to out, while the sessions are in use: lines of JSON
// (api.SessionBackup). Other pools may share the store. It needs the right sessions, and extends no session's life.
// Unless it succeeds, what it has written is no backup. ctx bounds it. It fails with store_unavailable, pool_not_found,
// no_workers or unavailable, and with the error of out.
func (p *Pool) ExportSessions(ctx context.Context, out io.Writer) (*api.SessionBackupEnd, error) {
	reply, err := p.trySessionGateways(ctx,
		transport.Request{Method: http.MethodGet, Path: "/v1/pools/" + p.name + "/sessions/export"})
	if err != nil {
		return nil, err
	}
	defer reply.Close()
	to := &tailWriter{out: out}
	if _, err := io.Copy(to, reply.Body); err != nil {
		var failure api.SessionBackupFailure
		switch {
		case to.failed != nil:
			return nil, to.failed
		case json.Unmarshal(to.last(), &failure) == nil && failure.Code != "":
			return nil, api.Errorf(failure.Code, "%s", failure.Error)
		}
		return nil, reply.Interrupted(err)
	}
	var end struct{ Sessions *int }
	if err := json.Unmarshal(to.last(), &end); err != nil || end.Sessions == nil {
		return nil, api.Errorf(api.CodeUnavailable,
			"the answer is truncated or not from a Tempool gateway: the last line of the backup is missing")
	}
	return &api.SessionBackupEnd{Sessions: *end.Sessions}, nil
}

// ImportOptions change what ImportSessions accepts.
type ImportOptions struct {
	AnyPool bool // accept the backup of another pool
}

// ImportSessions restores a backup into the pool's session store, which may be in use. It restores the sessions that do
// not exist, with their version, times and TTL, and those that have a lower version; it keeps every other one, so it
// can be repeated. Its error names the line, and what was done before. It needs the right sessions. ctx bounds it. It
// fails with invalid or payload_too_large for a damaged backup, with store_full, which evicts nothing, and as
// ExportSessions does.
func (p *Pool) ImportSessions(ctx context.Context, backup io.Reader, o ImportOptions) (*api.SessionImport, error) {
	reply, err := p.trySessionGateways(ctx, transport.Request{
		Method: http.MethodPost, Path: "/v1/pools/" + p.name + "/sessions/import?any_pool=" + strconv.FormatBool(o.AnyPool),
		Body: transport.AnyBody(backup),
		// A gateway that does not have the store says so before the backup is read, so that another one can be asked.
		Header: http.Header{"Expect": {"100-continue"}, "Content-Type": {"application/x-ndjson"}},
	})
	if err != nil {
		return nil, err
	}
	var done api.SessionImport
	return &done, reply.ReadJSON(&done)
}

// maxLastLine is above the size of the last line of a backup.
const maxLastLine = 4 << 10

// tailWriter passes on what is written to it and remembers the end of it.
type tailWriter struct {
	out    io.Writer
	tail   []byte // at most maxLastLine
	failed error
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.tail = append(w.tail, p[max(0, len(p)-maxLastLine):]...)
	w.tail = append(w.tail[:0], w.tail[max(0, len(w.tail)-maxLastLine):]...)
	n, err := w.out.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.failed = errors.Join(w.failed, err)
	return n, err
}

// last is the last line; a longer one is not whole, and so no JSON.
func (w *tailWriter) last() []byte {
	text := bytes.TrimSuffix(w.tail, []byte{'\n'})
	return text[bytes.LastIndexByte(text, '\n')+1:]
}
