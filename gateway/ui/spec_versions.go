package ui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// specView is the spec of a pool as its page shows it, without secrets, and which workers have an older one.
type specView struct {
	Version  int64
	Text     string
	Versions []specVersion
}

// specVersion are the workers that have one version of the spec.
type specVersion struct {
	Version int64
	Workers []int // the first of them
	More    int
	Present bool
	// Changes are those from this version to the present one. Unknown is why they are not known; "" if they are.
	Changes []spec.Change
	Unknown string
}

const (
	// shownVersions bounds the older versions that are compared, shownOfVersion the workers that each names.
	shownVersions, shownOfVersion = 3, 12
)

// specs groups the workers of a pool by their spec. It asks one worker of each older version, if there are any, for the
// version's spec.
func (v *visit) specs(status api.PoolStatus) specView {
	view := specView{Version: status.SpecVersion, Text: status.Spec.WithoutSecrets().Text(), Versions: versionsOf(status)}
	if len(view.Versions) < 2 && (len(view.Versions) == 0 || view.Versions[0].Present) {
		view.Versions = nil
		return view
	}
	ctx, cancel := context.WithTimeout(v.ctx(), samplesTimeout)
	defer cancel()
	for i := range view.Versions {
		one := &view.Versions[i]
		if one.Present {
			continue
		}
		if i > shownVersions {
			one.Unknown = fmt.Sprintf("only the newest %d older versions are compared", shownVersions)
			continue
		}
		older, err := v.d.config.Fleet.WorkerSpec(ctx, status.Pool, one.Workers[0])
		switch {
		case err != nil:
			one.Unknown = "its worker does not report it: " + message(err)
		case older.Version != one.Version:
			one.Unknown = "its worker has begun with another one"
		default:
			for _, c := range spec.ChangesWithoutSecrets(older.Spec, status.Spec) {
				if !ofPoolAlone(c.Key) {
					one.Changes = append(one.Changes, c)
				}
			}
		}
	}
	return view
}

// versionsOf groups the workers of a pool by the version of their spec, the present one first.
func versionsOf(status api.PoolStatus) (versions []specVersion) {
	of := map[int64][]int{}
	for _, w := range status.Workers {
		if w.SpecVersion != 0 {
			of[w.SpecVersion] = append(of[w.SpecVersion], w.Slot)
		}
	}
	for _, version := range slices.SortedFunc(maps.Keys(of), func(a, b int64) int { return cmp.Compare(b, a) }) {
		slots := of[version]
		more := max(0, len(slots)-shownOfVersion)
		versions = append(versions, specVersion{Version: version, Workers: slots[:len(slots)-more], More: more,
			Present: version == status.SpecVersion})
	}
	return versions
}

// ofPoolAlone reports whether a key is about the pool and not about its workers, none of which restarts for it.
func ofPoolAlone(key string) bool { return key == "pool.size" || strings.HasPrefix(key, "scale.") }
