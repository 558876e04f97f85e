// Package mirror carries the changes of a memory server's memory to a copy in another process.
//
// The server is the source, the copy the sink. The source connects, over TCP, under TLS where there
// are certificates. It says which memory it has and who it is; the sink takes the stream of a
// [verbs.Journal] or refuses it. What an answer of the server waits for is the journal's to say;
// what a copy may become is not decided here.
//
// # The connection
//
// All numbers are little-endian. The source begins with its hello:
//
//	offset  size  field
//	     0     8  magic "dmMirror"
//	     8     4  version of this protocol
//	    12     4  length of what follows the head
//	    16     8  size of the data region
//	    24     8  number of the view in which the stream is sent
//	    32     2  length of the name of the source
//	    34     2  length of the name of the sink
//	    36     4  zero
//	    40     -  the names
//
// The sink answers with 4 bytes, the length of a refusal, and its text; length 0 takes the stream.
// Then the source sends the stream and nothing else. The sink applies each item that it has whole,
// in order, and then says how far it is, in 8 bytes: once for all that one read has brought. It
// says nothing else. So both sides notice at once what does not belong there, and either ends the
// connection.
//
// A stream has one connection, from its begin. What ends it ends the copy's part in it: a later
// connection begins another stream, of a copy that is equal to the memory at that time.
//
// # Limits
//
// Each wait of the source has a limit: for the connection and the answer to its hello, for the
// socket to take what it sends, and for the copy while that lacks anything. A sink waits for the
// hello as long, and then for ever: a source may have nothing to say. Keepalive finds that its
// machine is gone.
package mirror
