// Package computeserver is the compute server: it holds the sessions of one index, answers RESP (so
// that any Redis client works) and gRPC (for the SDK and for other compute servers), and sends
// requests for keys of other servers to them.
//
// This package puts its rooms together: configuration, start and end, metrics, rpc.Compute and the
// connections to other servers. Each room imports only those below it:
//
//	computeserver             composition, gRPC, metrics
//	  resp                    the Redis protocol and its commands
//	    users                 who may use the index, and the rights of each user
//	    engine                sessions, operations, scans, forwarding
//	      ownership           maps, ranges, take-over, fencing
//	      internal/count      counters of requests
//
// The engine and what lies below it stand on pkg/env and know no network, so that simulations run
// them as they are. The front ends are shells around the engine.
package computeserver
