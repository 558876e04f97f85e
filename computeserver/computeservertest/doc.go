// Package computeservertest is what tests of the compute server's rooms share: an index whose maps
// the test sets, connections that speak RESP as it is, a real redis-server to compare with, and a
// clock that jumps. Package memindex is an index in memory. Only tests import it.
package computeservertest
