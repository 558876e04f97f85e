// Package region is the memory of a memory server: what lies where in it, who may reach which part,
// and the files that a process which starts again finds it in.
//
//	directory   dmindex.guard   one process at a time
//	    |
//	    +-- dmindex.region      header, superblocks, repair records, intents, chunks (layout.go)
//	    +-- dmindex.locks       the lock table
//	              |
//	         Open: mapped  -->  Publish: the header page says that the content is whole
//	              |
//	         Memory            what providers serve; Bytes is the same to the server itself
//	         ReadPiece         what copies and files get of it (pages.go)
//	         ZeroChunk         what was given back, in the journal (zero.go)
//
// A Region is safe for several goroutines once it is open, but for Publish, Withdraw, NoteShared
// and Prepare, of which one is called at a time. Two writers of one part of the memory are kept
// apart by the journal, or by who owns that part (owners.go).
package region
