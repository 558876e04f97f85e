// Package users says who may use an index, and what each user may do.
//
// There is always the user "default", whose passwords the operator makes. It may do everything.
// More users come from two ACL files, as Redis has them ([Parse]): what they may read and write is
// given by prefixes of keys. One is written by whoever administers the index, the other by the
// operator, from objects; a name that is in both is the user of the former. Passwords are kept as
// SHA-256 digests only.
//
// A [Directory] reads all files again when they change. A connection keeps a [Login]; it asks
// [Directory.Renew] before each batch of commands, so a user that was changed or taken away has the
// new rights from the next batch on. As long as nothing changed, that is one atomic load.
package users
