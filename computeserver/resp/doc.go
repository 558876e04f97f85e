// Package resp is the RESP front end of a compute server: connections, the Redis protocol, its
// commands and their replies, and the budget of their buffers.
//
// It imports engine and ownership, which know nothing of it, and users, which says who may run
// which command on which keys.
package resp
