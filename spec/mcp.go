package spec

import (
	"path"
	"slices"
	"strings"
)

// Values of mcp.mode: how an MCP server serves the clients of /mcp/{pool}.
const (
	MCPNone    = "none"    // not at all
	MCPShared  = "shared"  // a process serves requests of all clients
	MCPSession = "session" // each client has a process of its own
	MCPRequest = "request" // each request has one
)

// Values of mcp.era: which revisions of MCP the server speaks.
const (
	EraAuto   = "auto"   // what a process answers that is started for the question
	EraLegacy = "legacy" // those with initialize, to 2025-11-25
	EraModern = "modern" // those without sessions, from 2026-07-28
)

// Values of mcp.after_crash: what the client of a crashed process notices once it has another one.
const (
	CrashTell   = "tell"   // its next tool call fails, saying so
	CrashSilent = "silent" // nothing
	CrashEnd    = "end"    // its session has ended
)

// MCP configures the clients of an MCP server, at /mcp/{pool} of a gateway.
type MCP struct {
	// Mode is one of the MCP values.
	Mode string `json:"mode" default:"none" rule:"none|shared|session|request"`
	// Era is one of the Era values.
	Era string `json:"era" default:"auto" rule:"auto|legacy|modern"`
	// MaxSessions bounds the clients of the pool on one host.
	MaxSessions int `json:"max_sessions" default:"1000" rule:"1..1000000"`
	// MaxSessionsPerPrincipal bounds those of one principal among them; 0: like MaxSessions.
	MaxSessionsPerPrincipal int `json:"max_sessions_per_principal" rule:"0..1000000"`
	// Idle is how long a session without requests and streams keeps its process.
	Idle Duration `json:"idle" default:"30m"`
	// Park is how long a session without a process is remembered in the session store. 0: it ends with Idle, and with its
	// agent.
	Park Duration `json:"park" default:"24h" rule:"optional"`
	// AfterCrash is one of the Crash values.
	AfterCrash string `json:"after_crash" default:"tell" rule:"tell|silent|end"`
	// SSEAfter is how long a request may take before its answer becomes a stream of events, and KeepAlive is the interval
	// of comments in streams.
	SSEAfter  Duration `json:"sse_after" default:"500ms"`
	KeepAlive Duration `json:"keep_alive" default:"15s"`
	// Tools are globs of the names of the tools that clients see and call, all if it is empty, and ToolsDeny of those that
	// they do not.
	Tools     []string `json:"tools"`
	ToolsDeny []string `json:"tools_deny"`
	// Origins are those of web pages that may be clients, such as https://chat.example.
	Origins []string `json:"origins"`
	// Env are variables of a session's process, and where each comes from: EnvHeader and the name of a header of the
	// request that begins it, or EnvFile and a path that may hold PrincipalMark.
	Env map[string]string `json:"env"`
}

// On reports whether the pool's programs are MCP servers.
func (m MCP) On() bool { return m.Mode != MCPNone && m.Mode != "" }

// Filters reports whether the pool's clients may not use every tool, and Serves whether they may use one.
func (m MCP) Filters() bool { return len(m.Tools)+len(m.ToolsDeny) > 0 }

// Serves is described at Filters.
func (m MCP) Serves(tool string) bool {
	matches := func(glob string) bool {
		// A slash in a name separates nothing. A bad glob is refused when the spec is read.
		matched, _ := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(tool, "/", "\x00"))
		return matched
	}
	return (len(m.Tools) == 0 || slices.ContainsFunc(m.Tools, matches)) && !slices.ContainsFunc(m.ToolsDeny, matches)
}

// MCPEra is mcp.era. A server that starts with something of its client cannot be asked: it speaks the legacy revisions
// unless the spec says otherwise.
func (s *Spec) MCPEra() string {
	if s.MCP.Era == EraAuto && s.StartsForKey() {
		return EraLegacy
	}
	return s.MCP.Era
}
