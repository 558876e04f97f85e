// Package resp is the RESP front end of a compute server: connections, the Redis protocol, its
// commands and their replies, and the budget of their buffers.
//
// It imports engine and ownership, which know nothing of it. What it needs of the server's password
// is Passwords.
package resp
