package bench

const (
	with200  = "200 MB, scans of 100"
	with800  = "800 MB, scans of 100"
	with2000 = "2000 MB, scans of 100"

	whyFewClients = "load and cache: 72 clients on four NICs wait for round trips, of which SMART takes 2.7, Sherman 1.5; 800 MB for 512 million items hold 40% of the inner nodes that SMART looks for"
)

// dolphinClaims are those of Dolphin's paper. What it says of Dolphin is measured when that design
// is registered.
var dolphinClaims = []paperFigure{
	{
		paper: "Dolphin 6", figure: "five-claims-dolphin", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"A, 800 MB: SMART over Sherman", 1.51 / 1.32, throughput, place{"A", "SMART", with800}, place{"A", publishedSherman.label, with800}, whyFewClients},
			{"A, 800 MB over 200: Sherman", 1, throughput, place{"A", publishedSherman.label, with800}, place{"A", publishedSherman.label, with200}, "cache: 200 MB are 0.39 bytes an item, and our Sherman needs 0.81; their table II has 460 MB for it"},
			{"A, 800 MB over 200: SMART", above, throughput, place{"A", "SMART", with800}, place{"A", "SMART", with200}, ""},
			{"800 MB, uniform over skewed A: SMART", below, throughput, place{"uniform A", "SMART", with800}, place{"A", "SMART", with800}, ""},
			{"800 MB, uniform over skewed A: Sherman", above, throughput, place{"uniform A", publishedSherman.label, with800}, place{"A", publishedSherman.label, with800}, ""},
			{"A, 800 MB: Dolphin over Sherman", 1.51, throughput, place{"A", "Dolphin", with800}, place{"A", publishedSherman.label, with800}, ""},
			{"A, 800 MB: Dolphin over SMART", 1.32, throughput, place{"A", "Dolphin", with800}, place{"A", "SMART", with800}, ""},
		},
	},
	{
		paper: "Dolphin 7", figure: "five-claims-dolphin", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"C: SMART over Sherman", below, throughput, place{"C", "SMART", with2000}, place{"C", publishedSherman.label, with2000}, ""},
			{"C: p99 of SMART over Sherman's", above, p99, place{"C", "SMART", with2000}, place{"C", publishedSherman.label, with2000}, ""},
			{"LOAD: SMART over Sherman", 1 / 1.54, throughput, place{"LOAD", "SMART", with2000}, place{"LOAD", publishedSherman.label, with2000}, ""},
			{"LOAD: p50 of SMART over Sherman's", above, p50, place{"LOAD", "SMART", with2000}, place{"LOAD", publishedSherman.label, with2000}, "p99 is 1.2 times Sherman's: 21.4 and 17.5 µs"},
			{"A: Dolphin over Sherman", 1.45, throughput, place{"A", "Dolphin", with2000}, place{"A", publishedSherman.label, with2000}, ""},
			{"C: Dolphin over Sherman", 1, throughput, place{"C", "Dolphin", with2000}, place{"C", publishedSherman.label, with2000}, ""},
			{"LOAD: Dolphin over Sherman", 1, throughput, place{"LOAD", "Dolphin", with2000}, place{"LOAD", publishedSherman.label, with2000}, ""},
			{"LOAD: Dolphin over SMART", 1.54, throughput, place{"LOAD", "Dolphin", with2000}, place{"LOAD", "SMART", with2000}, ""},
		},
	},
	{
		paper: "Dolphin 8", figure: "five-claims-dolphin", sizes: sizes{warmup: 20_000, ops: 4_000},
		claims: []paperClaim{
			{"scans of 100: Sherman over SMART", 22.4, throughput, place{"range-only", publishedSherman.label, with2000}, place{"range-only", "SMART", with2000}, "program: our SMART READs leaves that lie beside each other by one request, as after a bulk load they do, and takes 3.4 round trips; with inserted records it is behind by more (SMART's page)"},
			{"scans of 100: Dolphin over Sherman", 1, throughput, place{"range-only", "Dolphin", with2000}, place{"range-only", publishedSherman.label, with2000}, ""},
		},
	},
	{
		paper: "Dolphin II", figure: "five-claims-dolphin", sizes: sizes{warmup: 200_000, ops: 20_000},
		claims: []paperClaim{
			{"memory, bytes an item: Sherman", 12e9 / 512e6, itemBytes, place{"LOAD", publishedSherman.label, with2000}, place{}, "an entry takes 24 bytes with its word, and leaves are two thirds full"},
			{"memory, bytes an item: SMART", 156e9 / 512e6, itemBytes, place{"LOAD", "SMART", with2000}, place{}, "program: the published one allots leaves of 34 bytes at 256, and each inner node at the largest size; ours allots by size"},
			{"memory, bytes an item: Dolphin", 14e9 / 512e6, itemBytes, place{"LOAD", "Dolphin", with2000}, place{}, ""},
		},
	},
	{
		paper: "Dolphin II", figure: "chime-14",
		claims: []paperClaim{
			{"cache for all inner nodes, bytes an item: Sherman", 460.0 / 512, cacheBytes, place{"", "Sherman", "60 million"}, place{}, ""},
			{"cache for all inner nodes, bytes an item: SMART", 5200.0 / 512, cacheBytes, place{"", "SMART", "60 million"}, place{}, "as in CHIME's figure 14"},
		},
	},
}
