package papers

import (
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench/report"
)

// fiveCluster has as many memory servers as compute servers, as the papers of DEX and Dolphin have.
// With 16 clients on each compute server the memory servers' NICs are at most half busy, so what an
// operation waits for bounds designs; with 64 of them the NICs do.
var fiveCluster = clusterSize{memory: 4, compute: 4, each: 16}

// fiveRecords are enough for subtrees on all memory servers (DEX), and nearly the 2^20 at which a
// radix tree's inner nodes of hashed keys are as full as they get: five-memory has both ends.
const fiveRecords = 1_000_000

// fiveWarmup is enough for caches to find what is popular.
const fiveWarmup = 200_000

// fiveShare is the cache of each compute server in the figures that have one size of it, in percent
// of the bytes of the items.
const fiveShare = 4

// Columns of the figures: what an operation costs in each resource that may be the scarce one, what
// an item costs, and what this machine's processors had to do.
var (
	fiveColumns   = report.Columns("p50 µs,p99 µs,READ,WRITE,atomic,log,trips,bytes,log bytes,NIC,skew,hits,cache B/item,B/item")
	memoryColumns = report.Columns("READ,trips,bytes,hits,cache B/item,B/item")
	realColumns   = report.Columns("p50 µs,p99 µs,cpu µs,trips,bytes,cache B/item")
)

// fiveFigures compare all designs that are registered, with all their techniques, by the same
// rules: one stream, one cluster, caches of the same bytes. A design that is registered later joins
// them.
var fiveFigures = []Comparison{
	{
		Name: "five", title: "All designs: YCSB with caches of 4% of the items' bytes", cluster: fiveCluster,
		records: fiveRecords, warmup: fiveWarmup, share: fiveShare, doubles: true, columns: fiveColumns,
		settings: []setting{withEach(16), withEach(64), all(withEach(64), withRate(45))},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform"},
			{workload: "A", distribution: paperSkew},
			{workload: "B", distribution: paperSkew},
			{workload: "C", distribution: paperSkew},
			{workload: "D", distribution: "latest"},
			{workload: "E", distribution: paperSkew},
			{workload: "F", distribution: paperSkew},
			{workload: "A", distribution: "uniform"},
			{workload: "C", distribution: "uniform"},
		},
		notes: []string{doublesNote, "Clients are those of each compute server. Without a word on messages the NIC of a memory server passes 77 million a second in each direction."},
	},
	{
		Name: "five-cache", title: "All designs by the cache of each compute server, in percent of the items' bytes", cluster: fiveCluster,
		records: fiveRecords, warmup: fiveWarmup, columns: fiveColumns,
		settings: []setting{
			all(withShare(1), withEach(16)), all(withShare(4), withEach(16)), all(withShare(16), withEach(16)),
			all(withShare(1), withEach(64)), all(withShare(4), withEach(64)), all(withShare(16), withEach(64)),
		},
		parts: []comparedPart{
			{workload: "C", distribution: paperSkew},
			{workload: "A", distribution: paperSkew},
			{workload: "C", distribution: "uniform"},
			{workload: "A", distribution: "uniform"},
		},
	},
	{
		Name: "five-skew", title: "All designs by skew", cluster: fiveCluster,
		records: fiveRecords, warmup: fiveWarmup, share: fiveShare, columns: fiveColumns,
		settings: []setting{
			all(withEach(64), withUniform()), all(withEach(64), withTheta(0.5)), all(withEach(64), withTheta(0.9)), all(withEach(64), withTheta(0.99)),
		},
		parts: []comparedPart{{workload: "C"}, {workload: "A"}},
	},
	{
		Name: "five-load", title: "All designs: inserts into an index that doubles", cluster: fiveCluster,
		records: 300_000, warmup: fiveWarmup, share: fiveShare, doubles: true, columns: fiveColumns,
		settings: []setting{withEach(1), withEach(16), withEach(64)},
		parts:    []comparedPart{{workload: "LOAD", distribution: "uniform"}},
		notes:    []string{doublesNote},
	},
	{
		Name: "five-scan", title: "All designs by the length of scans (and 5% inserts)", cluster: fiveCluster,
		records: fiveRecords, warmup: 20_000, ops: 4_000, share: fiveShare, columns: fiveColumns,
		settings: []setting{
			all(withScan(10), withEach(16)), all(withScan(100), withEach(16)), all(withScan(1000), withEach(16)),
			all(withScan(100), withEach(64)),
		},
		parts: []comparedPart{{workload: "E", distribution: paperSkew}, {workload: "E", distribution: "uniform"}},
	},
	{
		Name: "five-strings", title: "All designs by the length of keys", cluster: fiveCluster,
		records: 300_000, warmup: fiveWarmup, share: fiveShare, columns: fiveColumns,
		settings: []setting{
			all(withKeys(8), withEach(64)), all(withKeys(24), withEach(64)), all(withKeys(32), withEach(64)), all(withKeys(128), withEach(64)),
		},
		parts: []comparedPart{{workload: "C", distribution: paperSkew}, {workload: "A", distribution: paperSkew}},
		notes: []string{"Keys of 8 bytes are integers, hashed over all numbers. Longer ones share all but 16 hexadecimal digits, which stand behind the rest. CHIME keeps keys above 32 bytes outside of leaves."},
	},
	{
		Name: "five-values", title: "All designs by the length of values", cluster: fiveCluster,
		records: 300_000, warmup: fiveWarmup, share: fiveShare, columns: fiveColumns,
		settings: []setting{
			all(withValues(8), withEach(64)), all(withValues(64), withEach(64)), all(withValues(256), withEach(64)), all(withValues(1024), withEach(64)),
		},
		parts: []comparedPart{{workload: "C", distribution: paperSkew}, {workload: "A", distribution: paperSkew}},
		notes: []string{"The cache is a part of the items' bytes, so it grows with values."},
	},
	{
		Name: "five-clients", title: "All designs by the clients of each compute server", cluster: fiveCluster,
		records: fiveRecords, warmup: fiveWarmup, share: fiveShare, columns: fiveColumns,
		settings: []setting{withEach(1), withEach(4), withEach(16), withEach(64)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew}, {workload: "A", distribution: paperSkew}},
	},
	{
		Name: "five-memory", title: "All designs: memory of an item, with caches of 128% of the items' bytes", cluster: clusterSize{1, 1, 16},
		warmup: 600_000, ops: 5_000, share: 128, doubles: true, columns: memoryColumns,
		settings: []setting{
			withItems(65_536), withItems(262_144), withItems(1_048_576), all(withItems(262_144), withKeys(32)),
		},
		parts: []comparedPart{{workload: "C", distribution: "uniform"}, {workload: "LOAD", distribution: "uniform"}},
		notes: []string{
			"C is after a bulk load, LOAD after as many inserts again in random order. DEX's cache takes leaves, too, all that it gets; what others keep to find nodes by grows with the bound of the cache.",
			"The shape of a radix tree over hashed keys repeats with each factor of 256 in items: 65,536 is its worst point, 1,048,576 near its best.",
		},
	},
	{
		Name: "five-processor", title: "All designs on this machine's processors: one client, and a memory server in the same process", cluster: clusterSize{1, 1, 1},
		records: 300_000, warmup: fiveWarmup, ops: 200_000, real: true, share: 16, columns: realColumns,
		settings: []setting{withTransport("shm"), withTransport("tcp")},
		parts: []comparedPart{
			{workload: "C", distribution: paperSkew},
			{workload: "A", distribution: paperSkew},
			{workload: "E", distribution: paperSkew},
		},
		notes: []string{"In real time: nothing else may run. cpu µs is that of clients and memory server together; over shm a memory server has nothing to do."},
	},
}
