package papers

const (
	with200, with800 = "200 MB", "800 MB"

	whyFewClients = "load and cache: 72 clients on four NICs wait for round trips, of which SMART takes 2.7, Sherman 1.5; 800 MB for 512 million items hold 40% of the inner nodes that SMART looks for"
)

// dolphinClaims are those of Dolphin's paper, with as many clients as that has threads.
var dolphinClaims = []paperFigure{
	{
		paper: "Dolphin 6", figure: "dolphin-6", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"A, 800 MB: SMART over Sherman", 1.51 / 1.32, throughput, place{"6a", "SMART", with800}, place{"6a", publishedSherman.label, with800}, whyFewClients},
			{"A, 800 MB over 200: Sherman", 1, throughput, place{"6a", publishedSherman.label, with800}, place{"6a", publishedSherman.label, with200}, "cache: 200 MB are 0.39 bytes an item, and our Sherman needs 0.81; their table II has 460 MB for it"},
			{"A, 800 MB over 200: SMART", above, throughput, place{"6a", "SMART", with800}, place{"6a", "SMART", with200}, ""},
			{"800 MB, uniform over skewed A: SMART", below, throughput, place{"6c", "SMART", with800}, place{"6a", "SMART", with800}, ""},
			{"800 MB, uniform over skewed A: Sherman", above, throughput, place{"6c", publishedSherman.label, with800}, place{"6a", publishedSherman.label, with800}, ""},
			{"A, 800 MB: Dolphin over Sherman", 1.51, throughput, place{"6a", "Dolphin", with800}, place{"6a", publishedSherman.label, with800}, ""},
			{"A, 800 MB: Dolphin over SMART", 1.32, throughput, place{"6a", "Dolphin", with800}, place{"6a", "SMART", with800}, ""},
		},
	},
	{
		paper: "Dolphin 7", figure: "dolphin-7", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"C: SMART over Sherman", below, throughput, place{"7b", "SMART", ""}, place{"7b", publishedSherman.label, ""}, ""},
			{"C: p99 of SMART over Sherman's", above, p99, place{"7b", "SMART", ""}, place{"7b", publishedSherman.label, ""}, ""},
			{"LOAD: SMART over Sherman", 1 / 1.54, throughput, place{"7c", "SMART", ""}, place{"7c", publishedSherman.label, ""}, ""},
			{"LOAD: p50 of SMART over Sherman's", above, p50, place{"7c", "SMART", ""}, place{"7c", publishedSherman.label, ""}, "p99 is 1.2 times Sherman's: 21.4 and 17.5 µs"},
			{"A: Dolphin over Sherman", 1.45, throughput, place{"7a", "Dolphin", ""}, place{"7a", publishedSherman.label, ""}, ""},
			{"C: Dolphin over Sherman", 1, throughput, place{"7b", "Dolphin", ""}, place{"7b", publishedSherman.label, ""}, ""},
			{"LOAD: Dolphin over Sherman", 1, throughput, place{"7c", "Dolphin", ""}, place{"7c", publishedSherman.label, ""}, ""},
			{"LOAD: Dolphin over SMART", 1.54, throughput, place{"7c", "Dolphin", ""}, place{"7c", "SMART", ""}, ""},
		},
	},
	{
		paper: "Dolphin 8", figure: "dolphin-8", sizes: sizes{warmup: 20_000, ops: 4_000},
		claims: []paperClaim{
			{"scans of 100: Sherman over SMART", 22.4, throughput, place{"range-only", publishedSherman.label, ""}, place{"range-only", "SMART", ""}, "program: our SMART READs leaves that lie beside each other by one request, as after a bulk load they do, and takes 3.4 round trips; with inserted records it is behind by more (SMART's page)"},
			{"scans of 100: Dolphin over Sherman", 1, throughput, place{"range-only", "Dolphin", ""}, place{"range-only", publishedSherman.label, ""}, ""},
		},
	},
	{
		paper: "Dolphin II", figure: "dolphin-7", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"memory, bytes an item: Sherman", 12e9 / 512e6, itemBytes, place{"7c", publishedSherman.label, ""}, place{}, "an entry takes 24 bytes with its word, and leaves are two thirds full"},
			{"memory, bytes an item: SMART", 156e9 / 512e6, itemBytes, place{"7c", "SMART", ""}, place{}, "program: the published one allots leaves of 34 bytes at 256, and each inner node at the largest size; ours allots by size"},
			{"memory, bytes an item: Dolphin", 14e9 / 512e6, itemBytes, place{"7c", "Dolphin", ""}, place{}, ""},
		},
	},
	{
		paper: "Dolphin II", figure: "dolphin-table2",
		claims: []paperClaim{
			{"cache for all inner nodes, bytes an item: Sherman", 460.0 / 512, cacheBytes, place{"C", "Sherman", ""}, place{}, ""},
			{"cache for all inner nodes, bytes an item: SMART", 5200.0 / 512, cacheBytes, place{"C", "SMART", ""}, place{}, "as in CHIME's figure 14"},
			{"cache for all inner nodes, bytes an item: Dolphin", 320.0 / 512, cacheBytes, place{"C", "Dolphin", ""}, place{}, ""},
			{"cache for all inner nodes: Sherman over Dolphin", 1.44, cacheBytes, place{"C", "Sherman", ""}, place{"C", "Dolphin", ""}, ""},
			{"cache for all inner nodes: SMART over Dolphin", 16.25, cacheBytes, place{"C", "SMART", ""}, place{"C", "Dolphin", ""}, ""},
		},
	},
}
