package papers

const (
	whyRanks    = "skew: a billion ranks here, so fewer lookups are of hotspots (29%, theirs 81%); and SMART READs nodes that it lacks in the size that they have"
	whySmart100 = "cache: 100 MB hold a third of the inner nodes that SMART looks for, in both; ours READs those that it lacks in the size that they have"
	oneServer   = "1 memory servers, 1000 MB, 64 clients"
	tenServers  = "10 memory servers, 100 MB, 48 clients"
	longItems   = "keys of 40 B, values of 512 B"
)

// chimeClaims are those of CHIME's paper (SOSP 2024).
var chimeClaims = []paperFigure{
	{
		paper: "CHIME 3b, c", figure: "chime-3", sizes: sizes{warmup: 60_000, ops: 20_000},
		claims: []paperClaim{
			{"C, one memory server, caches of 1,000 MB: SMART over Sherman", 4.9, throughput, place{"", "SMART", oneServer}, place{"", "Sherman", oneServer}, ""},
			{"C, ten memory servers, caches of 100 MB: Sherman over SMART", 5.9, throughput, place{"", "Sherman", tenServers}, place{"", "SMART", tenServers}, whySmart100},
		},
	},
	{
		paper: "CHIME 12", figure: "chime-12", sizes: sizes{warmup: 60_000, ops: 15_000},
		claims: []paperClaim{
			{"LOAD: CHIME over Sherman", 1.6, throughput, place{"LOAD", "CHIME", ""}, place{"LOAD", "Sherman", ""}, ""},
			{"LOAD: CHIME over SMART", 1.2, throughput, place{"LOAD", "CHIME", ""}, place{"LOAD", "SMART", ""}, ""},
			{"LOAD: SMART over Sherman", 1.6 / 1.2, throughput, place{"LOAD", "SMART", ""}, place{"LOAD", "Sherman", ""}, ""},
			{"A: CHIME over Sherman", 2.2, throughput, place{"A", "CHIME", ""}, place{"A", "Sherman", ""}, ""},
			{"A: CHIME over SMART", 2.5, throughput, place{"A", "CHIME", ""}, place{"A", "SMART", ""}, ""},
			{"A: SMART over Sherman", 2.2 / 2.5, throughput, place{"A", "SMART", ""}, place{"A", "Sherman", ""}, whySmart100 + ". With all of them it is 2.3"},
			{"B: CHIME over Sherman", 3.6, throughput, place{"B", "CHIME", ""}, place{"B", "Sherman", ""}, ""},
			{"B: CHIME over SMART", 4.1, throughput, place{"B", "CHIME", ""}, place{"B", "SMART", ""}, ""},
			{"C: CHIME over Sherman", 4.3, throughput, place{"C", "CHIME", ""}, place{"C", "Sherman", ""}, ""},
			{"C: CHIME over SMART", 5.1, throughput, place{"C", "CHIME", ""}, place{"C", "SMART", ""}, whyRanks},
			{"C: SMART over Sherman", 4.3 / 5.1, throughput, place{"C", "SMART", ""}, place{"C", "Sherman", ""}, whySmart100 + ". With all of them it is 4.3"},
			{"C: CHIME over SMART with all inner nodes", below, throughput, place{"C", "CHIME", ""}, place{"C", "SMART, all cached", ""}, ""},
			{"D: CHIME over Sherman", 4.2, throughput, place{"D", "CHIME", ""}, place{"D", "Sherman", ""}, "18% of lookups are of hotspots (we think that the latest items are not among them), and a slot takes 32 bytes"},
			{"D: CHIME over SMART", 4.4, throughput, place{"D", "CHIME", ""}, place{"D", "SMART", ""}, "as above"},
			{"C: p99 of SMART over CHIME's", 2.8, p99, place{"C", "SMART", ""}, place{"C", "CHIME", ""}, ""},
		},
	},
	{
		paper: "CHIME 12", figure: "chime-12-scan",
		claims: []paperClaim{
			{"E: CHIME over Sherman", 1.2, throughput, place{"", "CHIME", ""}, place{"", "Sherman", ""}, "program: a scan READs whole leaves of 2.2 KB for 64 slots, where theirs leaves slots out; Sherman's have 1 KiB for 31 pairs. 0.75 with leaves of 32 slots"},
			{"E: CHIME over SMART", 2.5, throughput, place{"", "CHIME", ""}, place{"", "SMART", ""}, "as above"},
		},
	},
	{
		paper: "CHIME 13", figure: "chime-13", sizes: sizes{records: 60_000, warmup: 20_000, ops: 5_000},
		claims: []paperClaim{
			{"C, long items: CHIME over Sherman", above, throughput, place{"C", "CHIME", longItems}, place{"C", "Sherman", longItems}, "theirs is Marlin, whose values lie outside of leaves, too"},
			{"C, long items: CHIME over SMART", above, throughput, place{"C", "CHIME", longItems}, place{"C", "SMART", longItems}, "CHIME takes 2 round trips and 865 bytes, SMART 3.4 and 796; both fill the NIC"},
			{"A, long items: CHIME over SMART", above, throughput, place{"A", "CHIME", longItems}, place{"A", "SMART", longItems}, "a leaf has one lock for 64 items, and changes with blocks are not combined"},
			{"LOAD, long items: CHIME over SMART", above, throughput, place{"LOAD", "CHIME", longItems}, place{"LOAD", "SMART", longItems}, "a leaf that is divided has all its blocks READ for their keys"},
			{"E, long items: SMART over CHIME", above, throughput, place{"E", "SMART", longItems}, place{"E", "CHIME", longItems}, ""},
		},
	},
	{
		paper: "CHIME 14", figure: "chime-14",
		claims: []paperClaim{
			{"cache for all inner nodes, bytes an item: Sherman", 23.6 / 60, cacheBytes, place{"", "Sherman", "60 million"}, place{}, "their leaves have 64 items, ours 40"},
			{"cache for all inner nodes, bytes an item: CHIME", 27.6 / 60, cacheBytes, place{"", "CHIME without hotspots", "60 million"}, place{}, ""},
			{"cache for all inner nodes, bytes an item: SMART", 503.2 / 60, cacheBytes, place{"", "SMART", "60 million"}, place{}, "program: a copy takes 32 bytes and 9 for each child, and the table a fifth of the bound"},
			{"the same: SMART over CHIME with 30 MB of hotspots", 8.7, cacheBytes, place{"", "SMART", "60 million"}, place{"", "CHIME without hotspots", "60 million"}, "as above; ours is without hotspots"},
		},
	},
	{
		paper: "CHIME 18a", figure: "chime-18-skew", sizes: sizes{warmup: 60_000, ops: 15_000},
		claims: []paperClaim{
			{"A, theta 0.99 over 0.5: CHIME", above, throughput, place{"", "CHIME", "zipfian:0.99"}, place{"", "CHIME", "zipfian:0.5"}, "more changes find their lock taken (0.12 an operation, 0.01 with 0.5), 3% are combined"},
			{"A, theta 0.99 over 0.5: Sherman", above, throughput, place{"", "Sherman", "zipfian:0.99"}, place{"", "Sherman", "zipfian:0.5"}, "as CHIME"},
			{"A, theta 0.99 over 0.5: SMART", below, throughput, place{"", "SMART", "zipfian:0.99"}, place{"", "SMART", "zipfian:0.5"}, "cache: the more skew, the more inner nodes are found in 100 MB"},
		},
	},
	{
		paper: "CHIME 18b", figure: "chime-18-cache", sizes: sizes{warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C, 100 MB over 1,600: Sherman", 1, throughput, place{"", "Sherman", "100 MB"}, place{"", "Sherman", "1600 MB"}, ""},
			{"C, 100 MB over 1,600: CHIME", 1, throughput, place{"", "CHIME", "100 MB"}, place{"", "CHIME", "1600 MB"}, ""},
			{"C, 100 MB over 1,600: SMART", below, throughput, place{"", "SMART", "100 MB"}, place{"", "SMART", "1600 MB"}, ""},
			{"C, 400 MB over 1,600: SMART", 1, throughput, place{"", "SMART", "400 MB"}, place{"", "SMART", "1600 MB"}, "after 6,000 operations on each server neither cache is full"},
			{"C, large caches: CHIME over Sherman", 4.3, throughput, place{"", "CHIME", "1600 MB"}, place{"", "Sherman", "1600 MB"}, ""},
			{"C, large caches: CHIME over SMART", 1, throughput, place{"", "CHIME", "1600 MB"}, place{"", "SMART", "1600 MB"}, ""},
		},
	},
	{
		paper: "CHIME 18c", figure: "chime-18-size", sizes: sizes{warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C, values from 8 to 512 B: what CHIME loses", 9.4, throughput, place{"", "CHIME", "values of 8 B"}, place{"", "CHIME", "values of 256 B"}, "ours from 8 to 256 B: longer ones lie outside of leaves"},
			{"C, values from 8 to 512 B: what Sherman loses", 9.4, throughput, place{"", "Sherman", "values of 8 B"}, place{"", "Sherman", "values of 256 B"}, whyGrows + "; from 8 to 256 B"},
			{"C, values from 8 to 512 B: what SMART loses", 1.2, throughput, place{"", "SMART", "values of 8 B"}, place{"", "SMART", "values of 256 B"}, "from 8 to 256 B"},
		},
	},
	{
		paper: "CHIME 18e", figure: "chime-18-span", sizes: sizes{warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C, span of 8 over 512: Sherman", 18.6, throughput, place{"", "Sherman, 256 B", ""}, place{"", "Sherman, 16 KiB", ""}, "leaves of 256 bytes and 16 KiB"},
			{"C, span of 32 over 512: CHIME", 1, throughput, place{"", "CHIME, span 32", ""}, place{"", "CHIME, span 512", ""}, "100 MB hold more of the inner nodes of larger leaves"},
		},
	},
	{
		paper: "CHIME 18f", figure: "chime-18-hood", sizes: sizes{warmup: 60_000, ops: 10_000},
		claims: []paperClaim{
			{"C, neighbourhoods of 2 over 16", 1.1, throughput, place{"C", "2", ""}, place{"C", "16", ""}, "a slot has 32 bytes here, and without hotspots for seven lookups of ten bytes are what bounds them"},
		},
	},
}
