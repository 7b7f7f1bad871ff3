package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

var start = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// add adds n events of worker p/0, one a second from start.
func add(l *Log, n int) {
	for i := range n {
		l.Emit(api.EventWorkerTransitioned, api.WorkerSource("p/0"), start.Add(time.Duration(i)*time.Second),
			map[string]int{"n": i})
	}
}

// numbers reads everything that a reader gets, and sums up what it missed.
func numbers(t *testing.T, r *Reader) (ns []int, missed uint64) {
	for {
		batch, gone, more := r.Read()
		missed += gone
		for _, e := range batch {
			var event api.Event
			var data struct{ N int }
			require.NoError(t, json.Unmarshal(e.JSON, &event))
			require.NoError(t, json.Unmarshal(event.Data, &data))
			ns = append(ns, data.N)
		}
		if !more {
			return ns, missed
		}
	}
}

func TestAnEventIsACloudEvent(t *testing.T) {
	l := newLog("here", 4)
	add(l, 1)
	batch, _, _ := l.FromOldest(Filter{}).Read()
	require.Len(t, batch, 1)
	require.JSONEq(t, `{"specversion": "1.0", "id": "here-1", "source": "/pools/p/workers/0", "type": "worker.transitioned",
		"time": "2026-01-31T12:00:00Z", "datacontenttype": "application/json", "data": {"n": 0}}`, string(batch[0].JSON))
	require.Equal(t, "p", batch[0].Pool)
}

func TestAReaderContinuesAfterAnID(t *testing.T) {
	l := newLog("here", 8)
	add(l, 3)
	r := l.FromOldest(Filter{})
	numbers(t, r)
	place := r.Position()
	add(l, 2)
	again, found := l.After(place, Filter{})
	require.True(t, found)
	ns, missed := numbers(t, again)
	require.Equal(t, []int{0, 1}, ns)
	require.Zero(t, missed)
	for _, unknown := range []string{"there-1", "here-6", "here-", "here", "", "here--1"} {
		r, found := l.After(unknown, Filter{})
		require.False(t, found, unknown)
		ns, _ := numbers(t, r)
		require.Len(t, ns, 5)
	}
}

func TestAFilterSelects(t *testing.T) {
	l := newLog("here", 8)
	add(l, 2)
	l.Emit(api.EventLeaseGranted, api.WorkerSource("q/1"), start, nil)
	l.Emit(api.EventMissed, api.HostSource("h"), start, nil)
	count := func(f Filter) int {
		batch, _, _ := l.FromOldest(f).Read()
		return len(batch)
	}
	require.Equal(t, 4, count(Filter{}))
	require.Equal(t, 1, count(Filter{Types: []string{"lease.*"}}))
	require.Equal(t, 2, count(Filter{Types: []string{"lease.*", "events.missed"}}))
	require.Equal(t, 1, count(Filter{Since: start.Add(time.Second)}))
	require.Equal(t, 1, count(Filter{Pool: func(p string) bool { return p == "q" }}))
	require.Equal(t, 1, count(Filter{Pool: func(p string) bool { return p == "" }}))
}

func TestWaitEndsWithTheNextEventOrTheContext(t *testing.T) {
	l := newLog("here", 4)
	r := l.FromNow(Filter{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.False(t, r.Wait(ctx))
	go add(l, 1)
	require.True(t, r.Wait(t.Context()))
	require.True(t, r.Wait(t.Context()), "it was not read")
}

func TestAFloodOfOneTypeLeavesRoomForOthers(t *testing.T) {
	l := newLog("here", 1024)
	flood := l.limits[api.EventLeaseRefused]
	for range 100 {
		flood.take(7)
	}
	require.EqualValues(t, 100-flood.perSecond, l.Omitted()[api.EventLeaseRefused])
	require.True(t, flood.take(8), "the next second has a share of its own")
	l.Add(api.EventLeaseRefused, api.WorkerSource("p/0"), start, nil)
	l.Add(api.EventLeaseRefused, api.WorkerSource("p/0"), start, nil)
	batch, _, _ := l.FromOldest(Filter{}).Read()
	var first, second api.Event
	require.NoError(t, json.Unmarshal(batch[0].JSON, &first))
	require.NoError(t, json.Unmarshal(batch[1].JSON, &second))
	require.EqualValues(t, 90, first.Omitted)
	require.Zero(t, second.Omitted)
}

func TestLongDataIsBounded(t *testing.T) {
	l := newLog("here", 8)
	l.Emit(api.EventProcessEnded, api.WorkerSource("p/0"), start,
		map[string]any{"reason": strings.Repeat("é", maxEvent), "code": 1})
	many := map[string]string{}
	for i := range 1000 {
		many[fmt.Sprint(i)] = strings.Repeat("x", 100)
	}
	l.Emit(api.EventProcessEnded, api.WorkerSource("p/0"), start, many)
	l.Emit(api.EventProcessEnded, api.WorkerSource("p/0"), start, func() {})
	batch, _, _ := l.FromOldest(Filter{}).Read()
	require.Len(t, batch, 3)
	require.Less(t, len(batch[0].JSON), 2*maxText)
	require.Contains(t, string(batch[0].JSON), `"code":1`)
	require.Contains(t, string(batch[1].JSON), "the data was too long")
	require.Contains(t, string(batch[2].JSON), "cannot be encoded")
}

func TestTheRingAndEachBatchAreBoundedInBytes(t *testing.T) {
	l := newLog("here", Size)
	for range 2000 {
		l.Emit(api.EventProcessEnded, api.WorkerSource("p/0"), start,
			map[string]string{"reason": strings.Repeat("x", maxEvent-100)})
	}
	require.LessOrEqual(t, l.bytes, Bytes)
	held := 0
	for _, e := range l.ring {
		held += len(e.JSON)
	}
	require.Equal(t, l.bytes, held)
	r, read := l.FromOldest(Filter{}), 0
	for more := true; more; {
		var batch []Entry
		batch, _, more = r.Read()
		bytes := 0
		for _, e := range batch {
			bytes += len(e.JSON)
		}
		require.NotEmpty(t, batch)
		require.LessOrEqual(t, bytes, BatchBytes)
		read += bytes
	}
	require.Equal(t, held, read)
}

func TestSamplesAreEmittedOnlyForWhoNamesThem(t *testing.T) {
	l := newLog("here", 64)
	sample := func() { l.Emit(api.EventWorkerSampled, api.WorkerSource("p/0"), start, nil) }
	read := func(types ...string) int {
		batch, _, _ := l.FromOldest(Filter{Types: types}).Read()
		return len(batch)
	}
	sample()
	require.Zero(t, read(api.EventWorkerSampled), "nobody reads them")
	others := l.FromNow(Filter{Types: []string{"worker.*"}})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, others.Wait(ended))
	sample()
	require.Zero(t, read(api.EventWorkerSampled), "a glob does not ask for them")
	require.Zero(t, l.Omitted()[api.EventWorkerSampled], "nor is anything missing")

	require.False(t, l.FromNow(Filter{Types: []string{api.EventWorkerSampled}}).Wait(ended))
	sample()
	require.Equal(t, 1, read(api.EventWorkerSampled), "who has just read comes back")
	require.Zero(t, read("worker.*"))
	require.Zero(t, read())
	d := l.limits[api.EventWorkerSampled].asked
	require.True(t, d.exists(d.last.Load()+demandFor-1))
	require.False(t, d.exists(d.last.Load()+demandFor))
	end := d.begin()
	require.True(t, d.exists(d.last.Load()+demandFor), "while it waits")
	end()
}

func TestNoLogTakesNothing(t *testing.T) {
	var l *Log
	l.Emit(api.EventProcessEnded, "", start, nil)
	require.False(t, l.Wants(api.EventProcessEnded))
}
