package papers

import (
	"github.com/dmindex/dmindex/cmd/dmindex/internal/bench"
)

// Sherman with the techniques of its own paper, without those that were added since.
var publishedSherman = variant{label: "Sherman as published", design: "sherman", off: []string{"writeCombining", "readDelegation"}}

// smartCluster has the memory servers of SMART's paper, and half of its 16 compute servers with
// twice the clients on each: 384 clients, as in its factor analysis.
var smartCluster = clusterSize{memory: 2, compute: 8, each: 48}

// smartSteps are the techniques of its factor analysis, the last one first.
var smartSteps = []string{"writeCombining", "readDelegation", "rearLock", "inPlaceLeaf", "lockFreeInternal"}

// smartFigures are those of SMART (ACM TOS 20(3), 2024), sections 3 and 5. Only its text is used:
// what stands in diagrams alone is not read off.
var smartFigures = []Comparison{
	{
		Name: "smart-3", title: "SMART, figures 3a and 22d: compressed paths, and nodes of several sizes", cluster: smartCluster, warmup: 200_000, ops: 20_000, records: 60_000,
		variants: []variant{
			smartVariant,
			{label: "one type of node", design: "smart", off: []string{"nodeTypes"}},
			{label: "and no compressed paths", design: "smart", off: []string{"nodeTypes", "pathCompression"}},
		},
		settings: []setting{noCache, all(withKeys(32), noCache), withCache(chimeCache)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew}},
		notes:    []string{"The paper, without a cache: nodes of several sizes make 3.5 times more; compressed paths take 11% from p99. 60,000 records only: nodes of one type take 2 KiB each."},
	},
	{
		Name: "smart-4", title: "SMART, figure 4: a B+ tree and a radix tree, read-only; keys of 32 bytes and values of 64, but where it says otherwise", cluster: smartCluster, warmup: 400_000,
		variants: []variant{shermanVariant, smartVariant},
		settings: []setting{
			all(withKeys(32), withValues(64), noCache, withEach(1)),
			all(withKeys(32), withValues(64), noCache, withEach(8)),
			all(withKeys(32), withValues(64), noCache, withEach(48)),
			all(withKeys(8), withValues(64), noCache, withEach(48)),
			all(withKeys(32), withValues(64), withCache(20)),
			all(withKeys(32), withValues(64), withCache(100)),
			all(withKeys(32), withValues(64), withCache(1000)),
			all(withKeys(32), withValues(64), withCache(10000)),
		},
		parts: []comparedPart{{workload: "C", distribution: paperSkew}},
		notes: []string{"With one memory server the paper's Sherman ends at 4.17 million operations a second, with an amplification of 32; its radix tree without locks at 45."},
	},
	{
		Name: "smart-14", title: "SMART, figure 14: YCSB, 8-byte keys", cluster: smartCluster, warmup: 400_000,
		variants: []variant{shermanVariant, publishedSherman, smartVariant},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform", claims: []float64{1, 0, 1.6}},
			{workload: "A", distribution: paperSkew, claims: []float64{1, 0, 6.1}},
			{workload: "B", distribution: paperSkew, claims: []float64{1, 0, 2.4}},
			{workload: "C", distribution: paperSkew, claims: []float64{1, 0, 2.8}},
			{workload: "D", distribution: "latest", claims: []float64{1, 0, 2.4}},
			{workload: "E", distribution: paperSkew},
			{name: "uniform A", workload: "A", distribution: "uniform"},
			{name: "uniform C", workload: "C", distribution: "uniform"},
		},
		notes: []string{"The paper's ratios are those of its text, at peak throughput, to a Sherman without read delegation and write combining."},
	},
	{
		Name: "smart-15", title: "SMART, figure 15: YCSB, keys of 32 bytes", cluster: smartCluster, warmup: 400_000,
		variants: []variant{shermanVariant, smartVariant},
		settings: []setting{withKeys(32)},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform"},
			{workload: "A", distribution: paperSkew},
			{workload: "B", distribution: paperSkew},
			{workload: "C", distribution: paperSkew},
			{workload: "D", distribution: "latest"},
			{workload: "E", distribution: paperSkew},
		},
		notes: []string{"The paper gives numbers for these in its diagram only. Its keys are addresses of mail; ours share 16 bytes, and have 16 hexadecimal digits behind them."},
	},
	{
		Name: "smart-16", title: "SMART, figure 16: scalability of YCSB A", cluster: smartCluster, warmup: 200_000, ops: 30_000,
		variants: []variant{shermanVariant, smartVariant},
		settings: []setting{withEach(2), withEach(12), withEach(24), withEach(48), withEach(96)},
		parts:    []comparedPart{{workload: "A", distribution: paperSkew}},
		notes:    []string{"The settings are clients of each compute server."},
	},
	{
		Name: "smart-17", title: "SMART, figure 17: scans by the size of values, 128 clients", cluster: clusterSize{2, 8, 16}, warmup: 30_000, ops: 6_000,
		variants: []variant{shermanVariant, smartVariant},
		settings: []setting{withValues(8), withValues(64), withValues(128), withValues(256)},
		parts:    []comparedPart{{workload: "E", distribution: paperSkew}},
		notes:    []string{"The paper says that SMART is slower than Sherman with values of 8 bytes, and faster with values above 64."},
	},
	{
		Name: "smart-18", title: "SMART, figure 18: contributions of techniques", cluster: smartCluster, warmup: 200_000, ops: 20_000,
		variants: []variant{
			{label: "ART", design: "smart", off: smartSteps},
			{label: "+Lock-free inner nodes", design: "smart", off: smartSteps[:4]},
			{label: "+Update in place", design: "smart", off: smartSteps[:3]},
			{label: "+Rear lock", design: "smart", off: smartSteps[:2]},
			{label: "+Read delegation", design: "smart", off: smartSteps[:1]},
			{label: "+Write combining", design: "smart"},
		},
		parts: []comparedPart{
			{workload: "LOAD", distribution: "uniform", claims: []float64{1, 1.5, 1.5, 1.5, 1.5, 1.5}},
			{workload: "A", distribution: paperSkew, claims: []float64{0, 0, 1, 3.0, 3.0, 3.0 * 1.1}},
			{workload: "B", distribution: paperSkew, claims: []float64{1, 1, 1.5, 0, 0, 0}},
			{workload: "C", distribution: paperSkew, claims: []float64{1, 1, 1, 1, 1.1, 1.1}},
		},
		notes: []string{"The paper's factors of single steps are multiplied; of A it gives those from the third step on. Its locks are handed over in every step, and ours."},
	},
	{
		Name: "smart-19", title: "SMART, figure 19: locks that are handed over, and read delegation and write combining", cluster: smartCluster, warmup: 200_000, ops: 20_000,
		variants: []variant{
			{label: "E-HOCL", design: "smart", off: []string{"readDelegation", "writeCombining"}},
			{label: "HOCL", design: "smart", off: []string{"readDelegation", "writeCombining", "rearLock"}},
			{label: "neither", design: "smart", off: []string{"readDelegation", "writeCombining", "hierarchical"}},
			{label: "RDWC", design: "smart"},
		},
		parts: []comparedPart{{workload: "A", distribution: paperSkew, claims: []float64{1, 0, 0, 1.262}}},
		notes: []string{"The paper: 0.76 failed attempts at a lock an operation with HOCL, 0.29 with E-HOCL. Those of ours stand below conflicts, as far as another compute server had the lock."},
	},
	{
		Name: "smart-21", title: "SMART, figure 21: coroutines of each client", cluster: clusterSize{2, 8, 12}, warmup: 200_000, ops: 30_000,
		variants: []variant{smartVariant},
		settings: []setting{withEach(12), withEach(24), withEach(48), withEach(96)},
		parts: []comparedPart{
			{workload: "A", distribution: paperSkew},
			{workload: "C", distribution: paperSkew},
		},
		notes: []string{"Settings are sessions of each compute server: 1, 2, 4 and 8 for each of 12 clients. The paper: 1.3x (A) and 1.6x (C) with enough coroutines. Ours do not share a processor."},
	},
	{
		Name: "smart-22-skew", title: "SMART, figure 22a: by skew, half updates", cluster: smartCluster, warmup: 200_000, ops: 30_000,
		variants: []variant{shermanVariant, publishedSherman, smartVariant},
		settings: []setting{withTheta(0.5), withTheta(0.8), withTheta(0.9), withTheta(0.99)},
		parts:    []comparedPart{{workload: "A", distribution: paperSkew}},
		notes:    []string{"The paper: from 0.5 to 0.99 SMART loses a factor of 2.6, Sherman 7.4."},
	},
	{
		Name: "smart-22-size", title: "SMART, figures 22b, c and f: by the size of keys and values, and by memory servers, read-only", cluster: smartCluster, warmup: 200_000, ops: 30_000,
		variants: []variant{shermanVariant, smartVariant},
		settings: []setting{withKeys(8), withKeys(32), withKeys(128), withKeys(256), withValues(64), withValues(256), withValues(1024), withMemory(1), withMemory(4)},
		parts:    []comparedPart{{workload: "C", distribution: paperSkew}},
		notes: []string{"The paper: from keys of 8 to 256 bytes SMART loses a factor of 1.3, Sherman 14; from values of 8 to 1,024 bytes 3.1 and 64.",
			"Sherman's nodes stay at 1 KiB here, and values above 256 bytes lie outside of them: the paper's Sherman keeps its span, and its leaves grow with the items."},
	},
	{
		Name: "smart-22-items", title: "SMART, figures 22g and h: read delegation and write combining by the number of items", cluster: clusterSize{2, 8, 64}, warmup: 200_000, ops: 30_000,
		variants: []variant{smartVariant},
		settings: []setting{withRanks(60e6), withRanks(960e6)},
		parts: []comparedPart{
			{workload: "C", distribution: paperSkew},
			{workload: "A", distribution: paperSkew},
		},
		notes: []string{"The number of ranks stands for the number of items. The paper, with 60 million: 11.9% of reads delegated in C; 7.5% of reads and 8.8% of writes in A, with 1,024 clients."},
	},
}

// noCache is a cache that holds nothing.
var noCache = with("no cache", func(r *bench.Run) { r.CacheBytes, r.Warmup = 1, 2000 })
