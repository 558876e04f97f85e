// Package count counts the requests of a compute server, without locks on the way of a request:
// each pipeline or batch has a Tally of its own, which is published when it is answered.
package count
