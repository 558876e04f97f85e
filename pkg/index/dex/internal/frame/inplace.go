package frame

// An entry is put over the one that it replaces, in the image and, by the next flush, in the memory
// server, if it takes no more words. So keys whose values keep their length can change as often as
// they like in a leaf without room, and nobody waits for a write-back.
//
// The entry's WRITE precedes that of its slot (writeback.go), and may be cut short between any two
// words, by the death of its client or of the memory server's process, behind which the client
// gives up. That leaves a slot that does not verify: its word is the old one, and its entry is a
// mixture of the old one and the new one. Call that a torn slot. What holds of it:
//
//   - The key is to be read in it. The new entry has the same key at the same place, and a word of
//     it takes effect at once (G2), so the mixture has the key and its length.
//   - The key has a record in the log. The leaf was being written back, so its log was durable up
//     to the last change, and is truncated only once the flush is confirmed. That the key has been
//     changed in place says that it was there; so of its records one is plain, or says "if
//     present" and was made, and what it ends with (record.History) does not depend on what the
//     leaf has.
//   - Every other slot verifies, with the old entry or the new one: words of entries, and slots,
//     are not used for other keys before the next flush (frame). So a key is in one slot at all
//     times, except one that was deleted and inserted again; the slot that it had is emptied first.
//
// Where a torn slot may be seen:
//
//   - By a READ of this client, or a call, that is under way with the flush: if it is of that key,
//     or the leaf is to be kept, it is torn, and READ again. It finds no key missing that was
//     there, because the slot names it. A lookup of another key that is there needs no other slot.
//   - By the client that takes the range when its owner is dead. The replay makes the key's entry
//     one of zeros, as long as it was (repairTorn), under a slot that verifies, and then what the
//     log says. It does so before anything else looks at the leaf's entries. The replay may be cut
//     short as a flush is, by the same WRITEs, and leaves the same: it changes keys only that have
//     records, and those stay until the range is settled.
//   - By the client that takes the other side of a range's end, where the leaf belonged to one
//     client with both sides. It is divided at the end, by the first of the two; its entries are
//     made to verify under its lock before (mendEnd). So a key of the other range may have zeros
//     until that range is taken, and replayed from the same log. Nobody reads it before. A leaf
//     that begins at the end is left alone: its owner may be writing it back.
//   - By a scan that has come to the end of its range, which was given meanwhile: it ends there
//     when it finds such a leaf (btree, nextPairs).
//   - By Check, which fails if a dead client's range is not yet taken.
//
// Nobody else sees one: other clients READ the header alone of a leaf that is not theirs.
//
// A slot that does not verify and whose key has no record that overwrites it is damage, and stays
// what it is: an operation fails that needs the slot, or the whole leaf.
