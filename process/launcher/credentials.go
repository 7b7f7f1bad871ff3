package launcher

// Credentials are the user and groups that a program runs as. A nil *Credentials means the agent's own.
type Credentials struct {
	UID        uint32   `json:"uid"`
	GID        uint32   `json:"gid"`
	Groups     []uint32 `json:"groups,omitempty"`
	KeepGroups bool     `json:"keep_groups,omitempty"` // leave the supplementary groups as they are
}
