// Package access says who may do what at a gateway: the rights of a client, and the file of the tokens that grant them.
package access

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rights is a set of rights.
type Rights uint8

// The rights of a client.
const (
	Call     Rights = 1 << iota // call a pool
	Lease                       // check a worker out, and use the lease
	Sessions                    // read and write clients' sessions
	Read                        // read the state of pools and workers, and the metrics
	Admin                       // act as the operator: /v1/admin, and leases that have no token

	// All is every right.
	All = Call | Lease | Sessions | Read | Admin
	// Client is every right of a client that is not the operator.
	Client = Call | Lease | Sessions | Read
)

var rightNames = []struct {
	right Rights
	name  string
}{{Call, "call"}, {Lease, "lease"}, {Sessions, "sessions"}, {Read, "read"}, {Admin, "admin"}}

// Names lists the names of the rights in the set.
func (r Rights) Names() []string {
	names := []string{}
	for _, one := range rightNames {
		if r&one.right != 0 {
			names = append(names, one.name)
		}
	}
	return names
}

// String lists the rights, separated by commas.
func (r Rights) String() string { return strings.Join(r.Names(), ",") }

// parseRights returns the set of the named rights; it fails for an unknown name and for an empty list.
func parseRights(names []string) (Rights, error) {
	var set Rights
	for _, name := range names {
		at := slices.Index(All.Names(), name)
		if at < 0 {
			return 0, fmt.Errorf("unknown right %q; the rights are %s", name, All)
		}
		set |= rightNames[at].right
	}
	if set == 0 {
		return 0, fmt.Errorf("no right given; the rights are %s", All)
	}
	return set, nil
}

// Principal is a client whose identity is known. It is immutable.
type Principal struct {
	// Name identifies the client in errors, and where its share of a resource is bounded: token ci, certificate web, uid
	// 0, 127.0.0.1.
	Name   string
	Rights Rights
	// Pools are the globs of the pools that the client may use; nil is every pool.
	Pools []string
	// MaxPriority bounds the priority of its calls in a queue.
	MaxPriority int
}

// Has reports whether the client has all of these rights.
func (p *Principal) Has(r Rights) bool { return p.Rights&r == r }

// MayUse reports whether the client may use a pool.
func (p *Principal) MayUse(pool string) bool {
	if p.Pools == nil {
		return true
	}
	for _, glob := range p.Pools {
		if matched, _ := path.Match(glob, pool); matched { // a bad glob was refused when the file was read
			return true
		}
	}
	return false
}

// EveryPool reports whether the client may use every pool.
func (p *Principal) EveryPool() bool { return p.Pools == nil }
