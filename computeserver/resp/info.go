package resp

import (
	"fmt"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/internal/count"
	"github.com/dmindex/dmindex/computeserver/pubsub"
)

// ratio is a share of b to two digits; 0 if there is none.
func ratio(a, b float64) string { return strconv.FormatFloat(a/max(b, 1), 'f', 2, 64) }

// cmdInfo is INFO [section ...]: everything if no section is named.
func (c *conn) cmdInfo(args [][]byte) {
	s := c.s
	var b strings.Builder
	wanted := true // the section
	section := func(name string) (named bool) {
		wanted = len(args) == 1
		for _, a := range args[1:] {
			named = named || isWord(a, strings.ToUpper(name))
			wanted = wanted || named || isWord(a, "ALL") || isWord(a, "DEFAULT") || isWord(a, "EVERYTHING")
		}
		if wanted {
			fmt.Fprintf(&b, "# %s\r\n", name)
		}
		return named
	}
	line := func(key string, value any) {
		if wanted {
			fmt.Fprintf(&b, "%s:%v\r\n", key, value)
		}
	}
	section("Server")
	line("redis_version", respVersion)
	line("redis_mode", "standalone")
	line("dmindex_version", s.version)
	line("dmindex_design", s.core.Index.Design)
	line("dmindex_index", s.core.Index.Namespace+"/"+s.core.Index.Name)
	line("dmindex_server", s.core.Self)
	line("uptime_in_seconds", int64(time.Since(s.started).Seconds())) //env:real the age of a process
	section("Clients")
	line("connected_clients", s.core.Count.Connections.Load())
	line("maxclients", s.limits.Load().MaxConnections)
	line("pubsub_clients", s.listening())
	section("Memory")
	used := usedMemory()
	line("used_memory", used)
	line("used_memory_human", ratio(float64(used), 1<<20)+"M")
	line("maxmemory", 0)
	line("maxmemory_policy", "noeviction")
	section("Stats")
	line("total_commands_processed", s.core.Count.Operations.Load())
	line("rejected_connections", s.core.Count.Refused.Load())
	line("pubsub_channels", s.topics.Names(pubsub.Channels))
	line("pubsub_patterns", s.topics.Names(pubsub.Patterns))
	line("pubsubshard_channels", s.topics.Names(pubsub.Shards))
	line("dmindex_forwarded", s.core.Count.Forwarded.Load())
	pipelines, of := s.front.Pipelines()
	line("dmindex_pipelines", pipelines)
	line("dmindex_commands_per_pipeline", ratio(float64(of), float64(pipelines)))
	batches, of := s.batches.Pipelines()
	line("dmindex_batches", batches)
	line("dmindex_operations_per_batch", ratio(float64(of), float64(batches)))
	waits, waited := s.core.Count.LogWaits.Load(), time.Duration(s.core.Count.LogWaited.Load())
	line("dmindex_log_waits", waits)
	line("dmindex_log_wait_usec_average", ratio(float64(waited.Microseconds()), float64(waits)))
	stats := s.core.Sessions.Stats()
	line("dmindex_log_round_trips", stats.Log.RoundTrips)
	line("dmindex_round_trips", stats.Verbs.RoundTrips)
	line("dmindex_index_operations", stats.Operations)
	line("dmindex_index_cache_hits", stats.CacheHits)
	section("Replication")
	line("role", "master")
	line("connected_slaves", 0)
	section("Cluster")
	line("cluster_enabled", 0)
	section("Partition")
	line("dmindex_map_generation", s.core.View.Generation())
	if m := s.core.View.Current(); m != nil {
		line("dmindex_servers", len(m.Servers))
		line("dmindex_ranges", len(m.Ranges))
	}
	counts := section("Keyspace")
	if keys, expiring := c.keyspace(counts); keys > 0 {
		line("db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", keys, expiring))
	}
	c.replyBulk([]byte(b.String()))
}

// keyspace is how many keys there are, and how many of them expire: of the last count that somebody
// asked for, or of one now if the section is named. To count is a scan over all keys, which tools
// that ask for INFO every second must not cause. It is 0 for users that may not read every key, and
// where a count failed.
func (c *conn) keyspace(now bool) (keys, expiring int64) {
	if !c.login.User().ReadsAll() {
		return 0, 0
	}
	if now && c.s.core.Blocked() == nil && !c.refuse && c.database == "" { // see mayServe
		c.settle()
		if _, err := c.s.core.Size(c.s.size, c.patience()); err != nil {
			return 0, 0
		}
	}
	return c.s.size.Last()
}

// usedMemory is how many bytes the process uses: its cache and its buffers. The pairs of the index
// lie in memory servers.
func usedMemory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// cmdRole is ROLE: each server is one that takes writes, and has no replicas.
func (c *conn) cmdRole(_ [][]byte) {
	c.out = append(redcon.AppendBulkString(redcon.AppendArray(c.out, 3), "master"), ":0\r\n*0\r\n"...)
	c.tally.Count(count.OK)
}
