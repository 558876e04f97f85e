// Package persist keeps what a memory server holds in files of a directory, so that it is there
// again after all processes have ended, or the machine has.
//
// It is one more copy of the volume: the stream of a [verbs.Journal] is appended to a log, by a
// [Store] that is the link of a feed. So an answer waits for the disk as it waits for a backup, and
// all answers that wait share one fdatasync. A server that starts again has the memory and the
// ledger that were there behind a prefix of the changes, with all that was answered: to everything
// above, that is a restart of the memory server that keeps its content.
//
// # The directory
//
//	dmindex.guard   locked (flock) by the process that uses the directory
//	volume          what it is the directory of; written last when it is made
//	log.P           the stream from position P on, in frames; P is where an item begins
//	checkpoint.N    the memory, in pieces of 64 KiB, and the ledger
//	lacks           is there if the disk failed, and acknowledged changes may not be on it
//	*.new           is being written: removed at the start
//
// A file gets its name once it is on disk, and is used once its name is. Positions go on from one
// process to the next.
//
// # Checkpoints
//
//  1. At a position X where an item ends, the log goes on in a new file log.X, once the file before
//     is on disk.
//  2. Each piece is copied under the order of the journal, so it is the memory behind a whole
//     number of changes, at X or later. Pieces of zeroes are left out; they are looked for once the
//     changes before X, which were recorded, are made as well. The ledger is copied while nobody
//     changes it; changes of it up to that position are passed over later.
//  3. The checkpoint has its name once it is on disk, and the log is up to the last position at
//     which anything was copied.
//  4. Files of before are removed.
//
// Items say what bytes become, whatever they were. So pieces of several positions and all items
// from X on make the memory behind the last item.
//
// # A copy
//
// A copy of a server in another process (package mirror) writes the stream that it applies, each
// part before that ([Store.Take]). Its directory begins with a checkpoint of nothing, which says
// that there is no ledger yet: the parts of the memory and of the ledger come in the stream, and
// checkpoints on the way may have a part of the ledger. Nobody waits for its disk. So the directory
// counts for nothing until the copy takes no more, has put all on disk ([Store.Flush]), and has
// stored elsewhere that it has the content. From there on it is the directory of a server, and its
// log goes on with the stream of that one's own journal. A process that finds it before that
// empties it ([Discard]) when it takes a stream itself.
//
// What a copy writes begins and ends where items do, or is written again, so that the log can go on
// in another file at any time.
//
// # What is on disk
//
// Each frame says up to which position all was known to be on disk when it was written. The end of
// the last log may be torn: it is cut behind its last whole item. But if any frame behind the tear
// says that what is missing was on disk, the disk has lost what it had, and nothing is opened. The
// same goes for every other damage: of a log with a successor, of a checkpoint.
//
// After a failed fdatasync nobody knows what is on disk, and asking again says nothing (Linux takes
// such pages for clean). So it is final: nothing is acknowledged any more, and the server ends. The
// next process writes again, in place, what was not known to be on disk, before it goes on: what it
// reads of that may be in the page cache only. Changes that were acknowledged before they were on
// disk (Soon, Off) may be gone from there as well. So the process that sees the failure leaves a
// file that says so, if the disk lets it, and the directory is opened as one whose machine stopped
// is. A write that finds the disk full is made again later, and changes wait meanwhile.
package persist
