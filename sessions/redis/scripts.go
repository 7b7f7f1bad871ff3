package redis

import "github.com/redis/go-redis/v9"

// A session is a hash: v is its version, g the id of the last write, b its body, c the time it was created, t the time
// of its last use, and l its TTL, all times in milliseconds. Each script has that one key, so it runs on one node of a
// cluster. ARGV[1] is the caller's clock; in addition the server expires the key by its own clock.
//
// Each write has a unique id, so a script that a cluster client sends twice writes once and returns the same result.

// luaLoad starts a script: h holds the fields, live says whether the session exists and has not expired.
const luaLoad = `
local h = redis.call('HMGET', KEYS[1], 'v', 'g', 't', 'l', 'c')
local now = tonumber(ARGV[1])
local live = h[1] and now < tonumber(h[3]) + tonumber(h[4])
`

var (
	// getScript returns a session and extends its TTL, or returns nothing. It omits the body if the last write has the id
	// ARGV[2]. The time of the last use never goes backwards, but a use by a clock that is behind it keeps the session,
	// too.
	getScript = redis.NewScript(luaLoad + `if not live then return {} end
if now > tonumber(h[3]) then
  redis.call('HSET', KEYS[1], 't', ARGV[1])
  h[3] = ARGV[1]
end
redis.call('PEXPIRE', KEYS[1], h[4])
if h[2] ~= ARGV[2] then h[6] = redis.call('HGET', KEYS[1], 'b') end
return h`)
	// readScript returns v, g, t, l, c and the body without extending the TTL, or nothing.
	readScript = redis.NewScript(luaLoad + `if not live then return {} end
h[6] = redis.call('HGET', KEYS[1], 'b')
return h`)
	// peekScript returns v, g, t, l and c without extending the TTL, or nothing.
	peekScript = redis.NewScript(luaLoad + `if not live then return {} end return h`)
	// deleteScript returns whether the session existed.
	deleteScript = redis.NewScript(luaLoad + `redis.call('DEL', KEYS[1]) if live then return 1 end return 0`)
	// putScript stores a session for a sessions.Purpose, unless sessions.Header.MayReplace forbids it. It returns what it
	// did (sessions.Restored) and the time of the last use. One that has expired expires at once. Arguments: v, g, b, c,
	// t, l, the purpose.
	putScript = redis.NewScript(luaLoad + `
local did, t = 'created', ARGV[6]
if live and ARGV[8] ~= 'copy' then
  if h[2] == ARGV[3] then return {did, tonumber(h[3])} end
  if ARGV[8] == 'create' or tonumber(h[1]) >= tonumber(ARGV[2]) or tonumber(h[5]) > tonumber(ARGV[5]) then
    return {'kept', tonumber(h[3])}
  end
  did = 'replaced'
  if tonumber(h[3]) > tonumber(t) then t = h[3] end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'v', ARGV[2], 'g', ARGV[3], 'b', ARGV[4], 'c', ARGV[5], 't', t, 'l', ARGV[7])
redis.call('PEXPIRE', KEYS[1], math.max(1, tonumber(t) + tonumber(ARGV[7]) - now))
return {did, tonumber(t)}`)
	// swapScript replaces a session whose last write has the id ARGV[2]. It returns the time of the last use that the
	// server has, 0 if the session was changed, -1 if it does not exist. Arguments: g as read, then the new g, v, b; and t
	// and l if the use is to be written, too.
	swapScript = redis.NewScript(`
local h = redis.call('HMGET', KEYS[1], 'g', 't', 'l')
if not h[1] or tonumber(ARGV[1]) >= tonumber(h[2]) + tonumber(h[3]) then return -1 end
if h[1] == ARGV[3] then return tonumber(h[2]) end
if h[1] ~= ARGV[2] then return 0 end
local t = ARGV[6]
if not t then
  redis.call('HSET', KEYS[1], 'g', ARGV[3], 'v', ARGV[4], 'b', ARGV[5])
  return tonumber(h[2])
end
if tonumber(t) < tonumber(h[2]) then t = h[2] end
redis.call('HSET', KEYS[1], 'g', ARGV[3], 'v', ARGV[4], 'b', ARGV[5], 't', t, 'l', ARGV[7])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return tonumber(t)`)

	// reserveScript adds an id to the index unless that is full, and returns whether the id is in the index. KEYS: by use,
	// by review. Arguments: time of use, id, time of review, limit.
	reserveScript = redis.NewScript(`
if redis.call('ZSCORE', KEYS[1], ARGV[2]) then return 1 end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
return 1`)
	// removeScript removes those ids from the index whose review is due, and returns how many. KEYS: by use, by review.
	// Arguments: now, ids.
	removeScript = redis.NewScript(`
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
