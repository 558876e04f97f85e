// Package rdma holds the tests that `make rdma` runs against a memory server of its own process, on the same machine and on another one:
// the program `dmindex memserver --rdma`, TLS, leases, the pool and Sherman, over real queue pairs; and those of the program
// `dmindex device-plugin` against a real device. They are built with the tag ibv and need what hack/rdma/run prepares for them.
package rdma
