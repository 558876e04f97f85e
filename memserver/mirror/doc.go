// Package mirror carries the changes of a memory server's memory to a copy in another process.
//
// The server is the source, the copy the sink. The source connects, over TCP, under TLS where there
// are certificates. It has two connections to each copy, to the same port: one for the stream of a
// [verbs.Journal], and one on which it asks for permission to answer, which would come late behind
// the stream. [Primary] has all connections of a server, and [Sink] those of a copy. Which process
// is sent to, and what a copy may become, is decided by their volumes.Member.
//
// # The connection
//
// All numbers are little-endian. The source begins with its hello:
//
//	offset  size  field
//	     0     8  magic "dmMirror"
//	     8     4  version of this protocol
//	    12     4  kind: 1 = stream, 2 = permission
//	    16     8  size of the data region
//	    24     8  size of a chunk
//	    32     8  size of the lock table
//	    40     8  superblock slots
//	    48     4  format version of the data region
//	    52     4  newest format version of a ledger that the source writes
//	    56     8  number of the view in which it is sent
//	    64     8  join: which one of the source's it is
//	    72     8  position at which the stream of that join begins
//	    80     8  number of the process of the source
//	    88     8  number of the process of the sink
//	    96     4  length of the name of the source's pod
//	   100     4  length of the name of the sink's pod
//	   104     -  the names
//
// A sink takes only a stream of which it can open the memory (Shape): a copy that could not would
// hold its primary's answers up, count as one, and be of no use when that is gone.
//
// The sink answers with 8 bytes, the length of a refusal, and 8 bytes, the position up to which it
// has applied the stream; then the text of the refusal. Length 0 takes the connection.
//
// # The stream
//
// The source sends the stream from that position on, and nothing else. The sink applies each item
// that it has whole, in order, and then says how far it is, in 8 bytes: once for all that one read
// has brought. It says nothing else. So both sides notice at once what does not belong there, and
// either ends the connection.
//
// When the connection breaks, the source makes another one, with the same join. The sink takes it
// in the place of the first, of which it applies nothing any more. It may have part of an item from
// that, which comes again. The source has what the sink lacks, as long as it keeps that
// (verbs.Feed); else the copy has to join anew, with an empty memory.
//
// # Permissions
//
// The source sends 16 bytes: 1 = it asks for permission, 2 = it returns what it has, and a turn.
// The sink answers each with 16 bytes: 1 = granted or 0, and the turn.
//
// # Limits
//
// Each wait has a limit: for the connection and the answer to its hello, for either side to say
// something, and for permissions. A source with nothing to say records a mark of join 0 instead,
// every volumes.AskInterval. Keepalive finds that a machine is gone.
package mirror
