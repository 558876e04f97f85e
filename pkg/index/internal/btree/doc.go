// Package btree is the upper part of a B-link tree on disaggregated memory, after Sherman (Wang,
// Lu, Shu: SIGMOD 2022): inner nodes, descents through a cache of their copies, the root, and the
// changes of structure. It does not know how leaves keep their pairs: a design has leaves of its
// own (interface Leaves), and operations on them that use a Session.
//
// Nodes of fixed size lie in the memory servers, and each has a sibling pointer and fence keys
// (package fence). Changes take a node's lock (hierarchical, in pkg/pool), one at a time; lookups
// and scans take none. docs/design/sherman.md says for each remote request what others may see
// after it and why that is safe. A design whose leaves have owners keeps some of them in a cache,
// dirty ones, too: see LeafCache.
//
// # What a design's operations use
//
// An operation is Session.Begin, any of the following, Session.End.
//
//	find a leaf    Descend, Seek; READ the leaf. What is not the leaf that holds the key, whole,
//	               goes to Resolve, which says where to READ next
//	change a leaf  the same with Lock and ResolveLocked; queue the change; Publish, or Unlock
//	               without a change
//	split a leaf   SplitLeaf, which makes the sibling known to the parent (Connect); ConnectMet
//	               after an operation that may have met a sibling which is not known
//	combine        OfferChange to LockOr or AcquireOr; Answered if another session made it,
//	               else Combine makes it with those of others
//	after deletes  Tidy merges a leaf that is nearly empty with a neighbour
//	scan           ScanPairs, over LeafPairs
//
// Of the tree as a whole: Open, Load (bulk load), Check, Survey, Stats, Close.
//
// # What a leaf cache uses besides
//
//	without READs  DescendCached, CountCached; Path.Hint, Path.HintAt: where the cache has a leaf
//	offloading     DescendNear, Keeps, At, DescendFrom
//	fetching       Judge, JudgeFor; Staging, Remember, Remembers; Path.Next
//	boundaries     IsDivided, AwaitBelow, MergeAt, AwaitMerges: of ranges that change their owners
//	sizes          Tree.SetCacheBound, CacheBytes, TakeCacheShortage
//
// docs/design/adding-a-design.md has the folders around this one.
package btree
