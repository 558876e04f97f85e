package resp

import "strings"

// absent are commands of Redis that are not here, with why.
var absent = func() map[string]string {
	all := map[string]string{}
	for _, of := range []struct{ why, names string }{
		{"an index has no lists", "BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH LINDEX LINSERT LLEN LMOVE LMPOP LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM RPOP RPOPLPUSH RPUSH RPUSHX"},
		{"an index has no sets but sorted ones", "SADD SCARD SDIFF SDIFFSTORE SINTER SINTERCARD SINTERSTORE SISMEMBER SMEMBERS SMISMEMBER SMOVE SPOP SRANDMEMBER SREM SSCAN SUNION SUNIONSTORE"},
		{"an index has no streams", "XACK XADD XAUTOCLAIM XCLAIM XDEL XGROUP XINFO XLEN XPENDING XRANGE XREAD XREADGROUP XREVRANGE XSETID XTRIM"},
		{"an index has no commands on bits", "BITCOUNT BITFIELD BITFIELD_RO BITOP BITPOS GETBIT SETBIT"},
		{"an index has no HyperLogLogs", "PFADD PFCOUNT PFMERGE"},
		{"an index has no geospatial commands", "GEOADD GEODIST GEOHASH GEOPOS GEOSEARCH GEOSEARCHSTORE"},
		{"fields of a hash do not expire", "HEXPIRE HEXPIREAT HEXPIRETIME HGETEX HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HSETEX HTTL"},
	} {
		for name := range strings.FieldsSeq(of.names) {
			all[name] = of.why
		}
	}
	return all
}()

// longestAbsent is how long the names are at most.
const longestAbsent = 16

// whyAbsent says why a command of Redis is not here, or nothing.
func whyAbsent(name []byte) string {
	if len(name) > longestAbsent {
		return ""
	}
	if why, is := absent[strings.ToUpper(string(name))]; is {
		return "(" + why + "; COMMAND LIST has what it has)"
	}
	return ""
}
