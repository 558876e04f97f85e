// Package art is an adaptive radix tree of inner nodes on disaggregated memory, over leaves of any
// format: that of SMART (Luo and others: OSDI 2023, ACM TOS 20(3), 2024). docs/design/smart.md has
// the formats, and why what is done here is safe.
//
// A leaf hangs in a slot of an inner node, at the place that its key in the tree has. What a key in
// the tree is, the design says: SMART's leaves have one key each, and that is it. The slot says
// where a leaf lies, and how much of it to READ; all else that is to be known of leaves the design
// knows.
//
//	slot.go    slots
//	types.go   types of nodes; techniques.go, which ones a client makes
//	layout.go  what all nodes of an index have in common; branches
//	header.go  heads of nodes
//	copy.go    copies of nodes, as clients keep them
//	learn.go   what sessions store in copies
//	beside.go  which child of a copy lies beside a place
//	fill.go    images of nodes
//	frame.go   nodes with their children in order
//
//	tree.go      what a client has of a tree
//	session.go   what a session has of it; memory for nodes, and what was taken out; freezing
//	root.go      the root, and how another one takes its place
//	descend.go   descents, and the proof that a key is not there
//	cached.go    which copies an operation may use
//	bound.go     descents to the greatest place that is not above a key
//	link.go      how a leaf gets a slot
//	split.go     leaf split, header split
//	replace.go   freeze-and-copy: type switch, compaction, merges
//	unlink.go    how a leaf is taken out
//	nodelock.go  locks of nodes, of clients that want them
//	load.go      inner nodes above leaves that are loaded; publish.go, how they get into the tree
//	check.go     checks of a whole tree; survey.go, where its leaves begin
//	sweep.go     when sweeps are made
//	short.go     when memory is short
//	spread.go    on which memory servers nodes are made
package art
