// Package offload is the search in a memory server: both ends of a call, and the rule that says
// when a call pays. It knows the tree's nodes, and neither frames nor ranges: whether an answer may
// be used is its caller's business.
//
//	 client                                    memory server
//	+-----------------------------+   call    +--------------------------------+
//	| Costs: does a call pay?     | --------> | Executor: node by node, from   |
//	| Client: request, answer     | <-------- | the one that the request names |
//	+-----------------------------+   entry   +--------------------------------+
//	  else READs node by node         or: where to go on; or: READ yourself
//
// A call changes nothing, so one that is lost, late or repeated does no harm. The executor reads as
// a client without a lock does, and uses only what verifies.
//
//	request                                   answer
//	0   1  number of the design               0   1  outcome
//	1   1  version of this format             1   1  level, where to continue
//	2   1  what is asked for: 1 = the entry   2   6  zero
//	3   1  flags: 1 = uint64 keys, 2 = long   8   8  address: of the leaf, or where to continue
//	4   4  size of nodes                      16 ... the entry
//	8   8  address of the node to begin at
//	16  2  longest key
//	18  2  length of the key
//	20  1  level of that node
//	21  3  zero
//	24  16 the index's secret, by which entries are verified (package sum)
//	40 ... the key
//
// The room for the answer is always that of its fixed part and a node, because nodes are read into
// it.
package offload
