package resp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// settingsOfNames are the fields of a compute pool that do what settings of Redis do.
var settingsOfNames = map[string]string{
	"maxclients": "maxConnections", "timeout": "idleTimeoutSeconds", "slowlog-log-slower-than": "slowLogMicroseconds", "loglevel": "logLevel",
}

// cmdConfig answers what clients ask before they start. There is nothing to set: what one server
// was told would not hold for the others, nor for the next process of the same pod.
func (c *conn) cmdConfig(args [][]byte) {
	if isWord(args[1], "SET") {
		c.replyError(refusalOfSet(args[2:]))
		return
	}
	if !isWord(args[1], "GET") || len(args) < 3 {
		c.replyError("ERR CONFIG GET is possible; the configuration of an index is its DMIndex object")
		return
	}
	limits := c.s.limits.Load()
	var found [][2]string
	for _, known := range [][2]string{
		{"appendonly", "no"}, {"databases", "1"}, {"maxclients", strconv.Itoa(limits.MaxConnections)}, {"maxmemory", "0"}, {"maxmemory-policy", "noeviction"},
		{"notify-keyspace-events", ""}, {"proto-max-bulk-len", strconv.Itoa(maxBulk)}, {"save", ""},
		{"slowlog-log-slower-than", strconv.FormatInt(limits.SlowAfter.Microseconds(), 10)}, {"slowlog-max-len", strconv.Itoa(slowEntries)}, {"timeout", strconv.Itoa(int(limits.Idle.Seconds()))},
	} {
		for _, pattern := range args[2:] {
			if matches, _ := newGlob(bytes.ToLower(pattern), maxNameBytes).match([]byte(known[0])); matches {
				found = append(found, known)
				break
			}
		}
	}
	c.out = c.appendMap(c.out, len(found))
	c.tally.Count(count.OK)
	for _, f := range found {
		c.out = appendPair(c.out, f[0], f[1])
	}
}

// refusalOfSet says where to set what CONFIG SET names.
func refusalOfSet(pairs [][]byte) string {
	for i := 0; i < len(pairs); i += 2 {
		if len(pairs[i]) > maxNameBytes {
			continue
		}
		if field := settingsOfNames[strings.ToLower(string(pairs[i]))]; field != "" {
			return "ERR CONFIG SET is not possible; write settings." + field + " of the DMComputePool, or of its template in the DMIndex, which holds for all of its servers (kubectl explain dmcp.spec.settings." + field + ")"
		}
	}
	return "ERR CONFIG SET is not possible; the configuration of an index is its DMIndex object, and spec.settings of its DMComputePool (kubectl explain dmcp.spec.settings)"
}
