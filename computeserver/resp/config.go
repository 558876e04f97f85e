package resp

import (
	"bytes"
	"strconv"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// cmdConfig answers what clients ask before they start; there is nothing to set.
func (c *conn) cmdConfig(args [][]byte) {
	if !isWord(args[1], "GET") || len(args) < 3 {
		c.replyError("ERR CONFIG GET is possible; the configuration of an index is its DMIndex object")
		return
	}
	var found [][2]string
	for _, known := range [][2]string{
		{"appendonly", "no"}, {"databases", "1"}, {"maxclients", strconv.Itoa(c.s.maxConns)}, {"maxmemory", "0"}, {"maxmemory-policy", "noeviction"},
		{"notify-keyspace-events", ""}, {"proto-max-bulk-len", strconv.Itoa(maxBulk)}, {"save", ""},
		{"slowlog-log-slower-than", strconv.FormatInt(slowAfter.Microseconds(), 10)}, {"slowlog-max-len", strconv.Itoa(slowEntries)}, {"timeout", strconv.Itoa(int(c.s.idle.Seconds()))},
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
