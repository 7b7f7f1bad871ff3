package redis

import "github.com/redis/go-redis/v9"

// A session is a hash: v its version, g the word of the write that left it so, b its body, c, t and l when it was made, when it was last
// used, and how long it lives after that, in milliseconds. Each script has that one key, so that it runs on one node of a cluster.
// ARGV[1] is the caller's clock; the server's own clock ends a session's key, too.
//
// Each write has a word of its own, so a script that arrives twice, which a client of a cluster may cause, writes once and answers the
// same.

// fresh is the beginning of scripts: nothing is left of h where the session has expired.
const fresh = `
local h = redis.call('HMGET', KEYS[1], 'v', 'g', 't', 'l', 'c')
local now = tonumber(ARGV[1])
local live = h[1] and now < tonumber(h[3]) + tonumber(h[4])
`

// use notes a use, which an earlier clock does not set back.
const use = `
if now > tonumber(h[3]) then
  redis.call('HSET', KEYS[1], 't', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], h[4])
  h[3] = ARGV[1]
end
`

// withBody ends scripts that return v, g, t, l, c and the body.
const withBody = `h[6] = redis.call('HGET', KEYS[1], 'b') return h`

var (
	// getScript returns a session with its body, or nothing. The body is left out if its word is the one that ARGV[2] knows.
	getScript = redis.NewScript(fresh + `if not live then return {} end` + use + `
if h[2] ~= ARGV[2] then h[6] = redis.call('HGET', KEYS[1], 'b') end
return h`)
	// readScript does so without a use.
	readScript = redis.NewScript(fresh + `if not live then return {} end ` + withBody)
	// peekScript returns v, g, t, l and c without a use, or nothing.
	peekScript = redis.NewScript(fresh + `if not live then return {} end return h`)
	// touchScript returns whether there is a session.
	touchScript = redis.NewScript(fresh + `if not live then return 0 end` + use + `return 1`)
	// deleteScript returns whether there was one.
	deleteScript = redis.NewScript(fresh + `redis.call('DEL', KEYS[1]) if live then return 1 end return 0`)
	// createScript returns whether the id was free. Arguments: v, g, b, c, t, l.
	createScript = redis.NewScript(fresh + `
if live then
  if h[2] == ARGV[3] then return 1 end
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'g', ARGV[3], 'b', ARGV[4], 'c', ARGV[5], 't', ARGV[6], 'l', ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return 1`)
	// putScript stores a session in the place of whatever is there, or nothing if it has expired. Arguments: v, g, b, c, t, l.
	putScript = redis.NewScript(`
local left = tonumber(ARGV[6]) + tonumber(ARGV[7]) - tonumber(ARGV[1])
redis.call('DEL', KEYS[1])
if left <= 0 then return 0 end
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'g', ARGV[3], 'b', ARGV[4], 'c', ARGV[5], 't', ARGV[6], 'l', ARGV[7])
redis.call('PEXPIRE', KEYS[1], left)
return 1`)
	// swapScript returns the time of the last use, 0 if the session is not the one that was read, -1 if there is none. Arguments: v and g as
	// read, then v, g, b, t, l.
	swapScript = redis.NewScript(fresh + `
if not live then return -1 end
if h[2] == ARGV[5] then return tonumber(h[3]) end
if h[1] ~= ARGV[2] or h[2] ~= ARGV[3] then return 0 end
local t = ARGV[7]
if tonumber(t) < tonumber(h[3]) then t = h[3] end
redis.call('HSET', KEYS[1], 'v', ARGV[4], 'g', ARGV[5], 'b', ARGV[6], 't', t, 'l', ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[8])
return tonumber(t)`)

	// reserveScript gives an id a place in the index and returns whether there is one. KEYS: by use, by review. Arguments: use, id, review,
	// places.
	reserveScript = redis.NewScript(`
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 1 end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
return 1`)
	// forgetScript takes ids out of the index whose review is due still and returns how many. KEYS: by use, by review. Arguments: now, ids.
	forgetScript = redis.NewScript(`
local gone = 0
for i = 2, #ARGV do
  local due = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if not due or tonumber(due) <= tonumber(ARGV[1]) then
    gone = gone + redis.call('ZREM', KEYS[1], ARGV[i])
    redis.call('ZREM', KEYS[2], ARGV[i])
  end
end
return gone`)
)
