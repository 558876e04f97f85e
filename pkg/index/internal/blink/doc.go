// Package blink is a B-link tree on disaggregated memory, after Sherman (Wang, Lu, Shu: SIGMOD
// 2022): inner nodes, descents, and the changes of structure that designs share.
//
// Nodes of fixed size lie in the memory servers, and each has a sibling pointer and fence keys
// (package fence). Changes take a node's lock (hierarchical, in pkg/pool), one at a time; lookups
// and scans take none. Leaves are slotted (package slotted), and a change of one pair writes that
// entry and one slot word. docs/design/sherman.md says for each remote request what others may see
// after it and why that is safe. A design whose leaves have owners keeps some of them in a cache,
// dirty ones, too: see LeafCache.
package blink
