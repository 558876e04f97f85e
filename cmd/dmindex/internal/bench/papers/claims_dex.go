package papers

const (
	whyReadsOnce = "program: their Sherman READs three times for a lookup, ours once"
	whyEager     = "program: their SMART waits for the lock of its FIFO cache, half of its processor time; ours has no such lock, though it finds fewer inner nodes in the cache (2.2 READs, theirs 1.44)"
	whyLog       = "skew and program: locks of popular leaves do not collapse in our Sherman; and our DEX writes a change to its log before it answers"
	whyUniform   = "processor: 12% fewer READs do not pay for what a cache of leaves costs, 1.3 µs for each lookup that misses"
	dexScans     = "scans of 100"
)

// dexClaims are those of DEX's paper (PVLDB 17(10), 2024). Its Sherman is the published program
// without delegation and combining.
var dexClaims = []paperFigure{
	{
		paper: "DEX 6", figure: "five-claims-dex", sizes: sizes{ops: 40_000},
		claims: []paperClaim{
			{"C: DEX over Sherman", 3.6, throughput, place{"C", "DEX", dexScans}, place{"C", publishedSherman.label, dexScans}, whyReadsOnce},
			{"C: DEX over SMART", 9.6, throughput, place{"C", "DEX", dexScans}, place{"C", "SMART", dexScans}, whyEager},
			{"C: DEX over P-Sherman", 2.5, throughput, place{"C", "DEX", dexScans}, place{"C", pShermanVariant.label, dexScans}, "cache: 256 MB for 200 million records are 4% of the leaves, of which DEX finds half of the lookups (0.53 READs, theirs 0.33)"},
			{"C: SMART over Sherman", 3.6 / 9.6, throughput, place{"C", "SMART", dexScans}, place{"C", publishedSherman.label, dexScans}, whyEager},
			{"B: DEX over Sherman", 3.4, throughput, place{"B", "DEX", dexScans}, place{"B", publishedSherman.label, dexScans}, whyReadsOnce},
			{"B: DEX over SMART", 8.2, throughput, place{"B", "DEX", dexScans}, place{"B", "SMART", dexScans}, whyEager},
			{"A: DEX over Sherman", 9.6, throughput, place{"A", "DEX", dexScans}, place{"A", publishedSherman.label, dexScans}, whyLog},
			{"A: DEX over SMART", 7, throughput, place{"A", "DEX", dexScans}, place{"A", "SMART", dexScans}, whyEager},
			{"A: SMART over Sherman", 9.6 / 7, throughput, place{"A", "SMART", dexScans}, place{"A", publishedSherman.label, dexScans}, "load: 144 clients on four memory servers, whose NICs are not what bounds SMART: it takes 2.7 round trips, Sherman 1.5"},
		},
	},
	{
		paper: "DEX 6, 7", figure: "five-claims-dex", sizes: sizes{warmup: 10_000, ops: 3_000},
		claims: []paperClaim{
			{"E, scans of 100: DEX over Sherman", 2.8, throughput, place{"E", "DEX", dexScans}, place{"E", publishedSherman.label, dexScans}, "program: our Sherman READs the leaves of a range side by side"},
			{"E, scans of 100: DEX over SMART", 56.3, throughput, place{"E", "DEX", dexScans}, place{"E", "SMART", dexScans}, "program: our SMART READs leaves that lie beside each other by one request, after a bulk load; and waits for four rounds, not for each pair"},
			{"E, scans of 100: DEX over P-Sherman", 1.6, throughput, place{"E", "DEX", dexScans}, place{"E", pShermanVariant.label, dexScans}, ""},
			{"uniform scans: DEX over SMART", above, throughput, place{"uniform E", "DEX", dexScans}, place{"uniform E", "SMART", dexScans}, ""},
		},
	},
	{
		paper: "DEX 7", figure: "five-claims-dex", sizes: sizes{ops: 40_000},
		claims: []paperClaim{
			{"uniform C: DEX over Sherman", above, throughput, place{"uniform C", "DEX", dexScans}, place{"uniform C", publishedSherman.label, dexScans}, whyUniform},
			{"uniform C: DEX over SMART", above, throughput, place{"uniform C", "DEX", dexScans}, place{"uniform C", "SMART", dexScans}, ""},
			{"uniform A: DEX over Sherman", above, throughput, place{"uniform A", "DEX", dexScans}, place{"uniform A", publishedSherman.label, dexScans}, whyUniform + ", and each change waits for its log"},
			{"uniform A: DEX over SMART", above, throughput, place{"uniform A", "DEX", dexScans}, place{"uniform A", "SMART", dexScans}, ""},
			{"uniform C: DEX over P-Sherman", 1, throughput, place{"uniform C", "DEX", dexScans}, place{"uniform C", pShermanVariant.label, dexScans}, ""},
		},
	},
	{
		paper: "DEX 11", figure: "dex-11", sizes: sizes{records: 300_000, warmup: 160_000, ops: 40_000},
		claims: []paperClaim{
			{"B, cache of 32% over 1%: DEX", above, throughput, place{"read-intensive", "DEX", "32%"}, place{"read-intensive", "DEX", "1%"}, ""},
			{"B, cache of 32% over 8%: Sherman", 1, throughput, place{"read-intensive", "Sherman", "32%"}, place{"read-intensive", "Sherman", "8%"}, ""},
			{"A, cache of 8% over 1%: DEX", above, throughput, place{"write-intensive", "DEX", "8%"}, place{"write-intensive", "DEX", "1%"}, ""},
			{"A, cache of 32% over 8%: DEX", below, throughput, place{"write-intensive", "DEX", "32%"}, place{"write-intensive", "DEX", "8%"}, "model: cores that meet at the lock of a popular leaf take no simulated time"},
		},
	},
	{
		paper: "DEX table 2", figure: "five-claims-dex", sizes: sizes{ops: 40_000},
		claims: []paperClaim{
			{"C: READs, DEX", 0.33, opReads, place{"C", "DEX", dexScans}, place{}, "skew: ranks of a billion items on 300,000 records, so the rare ones are more alike than in the paper"},
			{"C: READs, Sherman", 3.02, opReads, place{"C", publishedSherman.label, dexScans}, place{}, whyReadsOnce},
			{"C: READs, P-Sherman", 1, opReads, place{"C", pShermanVariant.label, dexScans}, place{}, ""},
			{"C: READs, SMART", 1.44, opReads, place{"C", "SMART", dexScans}, place{}, "cache: as many bytes hold fewer of the inner nodes, whose copies are larger here (40% of descents)"},
			{"C: bytes, DEX", 334, opBytes, place{"C", "DEX", dexScans}, place{}, "as its READs"},
			{"C: bytes, Sherman", 1065, opBytes, place{"C", publishedSherman.label, dexScans}, place{}, ""},
			{"C: bytes, SMART", 997, opBytes, place{"C", "SMART", dexScans}, place{}, ""},
			{"A: READs, DEX", 0.33, opReads, place{"A", "DEX", dexScans}, place{}, "as in C; and a change READs its leaf, also where an entry of its key is kept"},
			{"A: WRITEs, DEX", 0.19, opWrites, place{"A", "DEX", dexScans}, place{}, "of pages; WRITEs of the log are not counted, of which theirs has none"},
			{"A: WRITEs, Sherman", 0.99, opWrites, place{"A", publishedSherman.label, dexScans}, place{}, ""},
			{"A: atomics, Sherman", 0.59, opAtomics, place{"A", publishedSherman.label, dexScans}, place{}, "ours releases by an atomic, too, which proves that the lock was held"},
			{"A: READs, Sherman", 2.71, opReads, place{"A", publishedSherman.label, dexScans}, place{}, whyReadsOnce},
			{"A: WRITEs, SMART", 0.11, opWrites, place{"A", "SMART", dexScans}, place{}, "theirs WRITEs for one update in five, where SMART's own paper combines 8.8% of the operations; ours answers no update before it is written"},
		},
	},
}
