// Package rdma holds the tests that `make rdma` runs against a memory server of its own process, on
// the same machine and on another one: the program `dmindex memserver --rdma`, TLS, leases, the
// pool and Sherman, over real queue pairs; those of the program `dmindex device-plugin` against a
// real device; and those of memory and compute servers with the very arguments that the operator
// writes into pods. They are built with the tag ibv and need what hack/rdma/run prepares for them.
package rdma
